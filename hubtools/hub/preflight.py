"""Everything the Hub would refuse, asked for before the first byte and told all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hubtools.errors import Finding
from hubtools.hub.explain import status_of
from hubtools.hub.model import README, RepoPlan, RepoType
from hubtools.hub.network import call, request
from hubtools.hub.remote import read_head
from hubtools.hub.rules import plan_findings, repo_id_problem
from hubtools.hub.session import Account, Session

_TOKEN_FIX = "make a token with write access there, hf auth login, then run the same command again"


def preflight(session: Session, plans: Sequence[RepoPlan]) -> list[Finding]:
    """Names, paths, sizes, counts, write scope, README metadata and storage of every repo.

    Returns:
        All findings, in the order of `plans`; an empty list means the Hub is expected to accept.

    Raises:
        AuthError: HT302 no token, HT303 a refused one: nothing else can be asked then.
        EnvironmentFailure: HT307, HT309, HT319 when the Hub cannot be asked.
    """
    account = session.whoami()
    findings: list[Finding] = []
    existing: list[RepoPlan] = []
    for plan in plans:
        findings += plan_findings(plan)
        if repo_id_problem(plan.repo):
            continue
        exists = read_head(session, plan.repo, plan.repo_type) is not None
        existing += [plan] if exists else []
        findings += _scope(session, account, plan, exists)
        for file in plan.files:
            if file.path == README:
                text = file.source.read_text(errors="replace")
                findings += check_readme(session, text, plan.repo_type, where=str(file.source))
    if existing:
        findings += _storage(session, existing[0])
    return findings


def check_readme(
    session: Session, text: str, repo_type: RepoType = "model", *, where: str = README
) -> list[Finding]:
    """Ask the Hub whether it accepts the front matter of a README.

    Args:
        session: the Hub to ask.
        repo_type: which rules apply.
        text: the whole README.
        where: the file, for the findings.

    Returns:
        HT316 errors and HT317 warnings in the Hub's own words; nothing when this Hub has no such
        check (other than huggingface.co, some do not).
    """
    body = {"content": text, "repoType": repo_type}

    def ask() -> Any:
        response = request(session, "POST", "/api/validate-yaml", json=body)
        if response.status_code not in (200, 400, 404, 405):
            response.raise_for_status()
        return response

    response = call(session, "checking the README", ask)
    if response.status_code in (404, 405):
        return []
    answer = response.json()
    fix = "correct the front matter (the manifest or prose it comes from), then: hubtools plan"
    errors = [
        Finding("HT316", "error", _said(session, "refuses", item), where=where, next=fix)
        for item in answer.get("errors") or []
    ]
    warned = [
        Finding("HT317", "warning", _said(session, "warns about", item), where=where, next=fix)
        for item in answer.get("warnings") or []
    ]
    return errors + warned


def _said(session: Session, verb: str, item: dict[str, Any]) -> str:
    return f"the Hub {verb} the README's metadata: {session.redact(str(item.get('message')))}"


def _scope(session: Session, account: Account, plan: RepoPlan, exists: bool) -> list[Finding]:
    def finding(id: str, message: str) -> list[Finding]:
        return [Finding(id, "error", message, where=plan.repo, next=_TOKEN_FIX)]

    if account.role == "read":
        return finding("HT304", f"the token of {account.name} is read-only: {plan.repo}")
    if exists:
        if _may_write(session, plan):
            return []
        return finding("HT304", f"this token may not write to {plan.repo}")
    owner = plan.repo.partition("/")[0]
    if account.may_create_in(owner) or session.loopback:  # a rehearsal Hub makes owners as named
        return []
    known = ", ".join(account.orgs) or "none"
    return finding(
        "HT305",
        f"{account.name} cannot create {plan.repo}: {owner} is neither this user nor an "
        f"organisation it may write to (those: {known})",
    )


def _may_write(session: Session, plan: RepoPlan) -> bool:
    def check() -> bool:
        try:
            session.api.auth_check(plan.repo, repo_type=plan.repo_type, write=True)
        except Exception as error:
            if status_of(error) in (403, 404):
                return False
            raise
        return True

    return call(session, "checking write access", check, repo=plan.repo)


def _storage(session: Session, plan: RepoPlan) -> list[Finding]:
    """HT306 when the client is going to use xet storage and this Hub has none."""
    from huggingface_hub.utils._runtime import is_xet_available

    if not is_xet_available():
        return []
    path = f"/api/{plan.repo_type}s/{plan.repo}/xet-write-token/main"
    response = call(
        session, "asking for storage", lambda: request(session, "GET", path), repo=plan.repo
    )
    if response.status_code != 404:
        return []
    return [
        Finding(
            "HT306",
            "error",
            "this endpoint has no Xet storage: set HF_HUB_DISABLE_XET=1",
            where=session.endpoint,
            next="export HF_HUB_DISABLE_XET=1, then run the same command again",
        )
    ]
