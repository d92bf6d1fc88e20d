"""check: everything that would stop the release, found before the first byte and told at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hubtools.card.reported import read_reported
from hubtools.checkpoint.inspect import inspect_checkpoint
from hubtools.checkpoint.merging.plan import plan_merge
from hubtools.errors import Finding, HubtoolsError
from hubtools.evaluation.bridge import planned_protocol
from hubtools.family.manifest import Member
from hubtools.hub.diff import ours
from hubtools.hub.model import RemoteState, RepoPlan
from hubtools.hub.preflight import preflight
from hubtools.hub.rules import repo_id_problem
from hubtools.release.adopt import adopted
from hubtools.release.context import Release
from hubtools.release.foresee import disclosed, foreseen, secrets_in_prose, strays
from hubtools.release.refuse import as_finding
from hubtools.release.stages.push import visibility_marker
from hubtools.release.stages.verify import Verify


def check_local(release: Release) -> list[Finding]:
    """What this machine can tell: inputs, base, names, suites, logs, prose."""
    findings: list[Finding] = []
    table = release.family.manifest.family
    place = release.family.where("family", "base")
    if table.base.revision is None:
        findings.append(
            Finding(
                "HT512",
                "error",
                f"base {table.base.repo} has no revision: which weights were these trained from?",
                where=place,
                next=f'add revision = "<40 hex>" at {place}',
            )
        )
    if not table.license:
        findings.append(
            Finding(
                "HT513",
                "warning",
                "no licence is stated; the card will say so",
                where=release.family.where("family"),
                next='add license = "…" to [family]',
            )
        )
    for suite in table.suites:
        findings += _caught(lambda suite=suite: planned_protocol(suite, dtype="float32"))  # type: ignore[misc]
    base = release.base_path()
    if base is not None and release.needs_base():
        findings += _caught(lambda: inspect_checkpoint(base))
    if release.family.manifest.provenance.status == "logs":
        findings += _caught(lambda: Verify().inputs(release, release.targets[0]))
    reported = release.family.manifest.card.reported
    if reported:
        findings += _caught(lambda: read_reported(release.family.resolve(reported)))
    findings += secrets_in_prose(release.family)
    findings += strays(release.family)
    for member in release.targets:
        findings += _member(release, member)
        findings += _caught_all(lambda member=member: foreseen(release, member), member.id)  # type: ignore[misc]
    return findings


def _member(release: Release, member: Member) -> Iterator[Finding]:
    table = release.family.manifest.family
    problem = repo_id_problem(member.repo)
    if problem:
        place = release.family.where("family", "name")
        fix = f"correct owner, id or name at {place}"
        yield Finding("HT311", "error", problem, where=place, next=fix, member=member.id)
    checkpoint = member.checkpoint
    if checkpoint is None or not checkpoint.is_dir():
        yield Finding(
            "HT514",
            "error",
            "no checkpoint directory",
            where=str(checkpoint or release.family.path),
            next=f"correct [inputs] checkpoint at {release.family.where('inputs', 'checkpoint')}",
            member=member.id,
        )
        return
    try:
        info = inspect_checkpoint(checkpoint)
    except HubtoolsError as error:
        yield as_finding(error, member.id)
        return
    # HT107, a local path as base: the manifest names the base, and what is published is rewritten.
    yield from (finding for finding in info.findings if finding.id != "HT107")
    wanted = "full" if table.kind == "full" else "adapter"
    if info.kind != wanted:
        yield Finding(
            "HT515",
            "error",
            f'kind = "{table.kind}" needs {wanted} checkpoints, but this one is {info.kind}',
            where=str(checkpoint),
            next=f"correct kind at {release.family.where('family', 'kind')}",
            member=member.id,
        )
        return
    stated = info.trainer.global_step if info.trainer else None
    if None not in (stated, member.optimizer_step) and stated != member.optimizer_step:
        yield Finding(
            "HT516",
            "error",
            f"{member.id} is declared as optimizer step {member.optimizer_step}, but its trainer"
            f" state says {stated}",
            where=str(checkpoint / "trainer_state.json"),
            next=f"correct [inputs] checkpoint or [steps.{member.step}] in {release.family.path}",
            member=member.id,
        )
    base = release.base_path()
    if table.kind == "merged" and base is not None and base.is_dir():
        yield from _caught(lambda: plan_merge(checkpoint, base), member.id)
    yield from disclosed(release, member)


def check_remote(release: Release) -> list[Finding]:
    """What the Hub can tell: token, scope, names, and cards that are not ours to replace.

    Raises:
        AuthError: no token, or a refused one.
        EnvironmentFailure: the Hub is not there.
    """
    assert release.session is not None
    visibility = release.family.manifest.family.visibility
    plans = [RepoPlan(m.repo, "model", (), visibility) for m in release.targets]
    findings = preflight(release.session, plans)
    for member in release.targets:
        remote = release.remotes[member.repo]
        if not ours(remote) and not adopted(release, remote):
            findings.append(
                Finding(
                    "HT517",
                    "error",
                    f"the README of {member.repo} was written or edited by hand since our last"
                    " release; it is not overwritten",
                    where=f"{member.repo}@{(remote.head or '')[:7]}",
                    next=f"hubtools card adopt {member.repo} (keeps its text as prose)",
                    member=member.id,
                )
            )
        findings += _visibility(release, member, remote)
        findings += _other_family(release, member, remote)
    return findings


def _visibility(release: Release, member: Member, remote: RemoteState) -> list[Finding]:
    """A repo that is there is left as it is; that it is not as declared must not go unsaid."""
    declared = release.family.manifest.family.visibility
    unfinished = visibility_marker(release, member).is_file()
    if not remote.exists or unfinished or remote.private == (declared == "private"):
        return []
    return [
        Finding(
            "HT523",
            "warning",
            f"{member.repo} is {'private' if remote.private else 'public'}, and the manifest says"
            f" {declared}; it is left as it is",
            where=release.family.where("family", "visibility"),
            next=f"change it in the settings of {member.repo}, or set visibility in [family]",
            member=member.id,
        )
    ]


def _other_family(release: Release, member: Member, remote: RemoteState) -> list[Finding]:
    """Two manifests that release into one repo would replace each other's work in turns."""
    written = (remote.release or {}).get("member")
    other = written.get("family") if isinstance(written, dict) else None
    own = release.family.manifest.family.id
    if other is None or other == own:
        return []
    return [
        Finding(
            "HT524",
            "warning",
            f"{member.repo} holds a release of family {other!r}; this one, of {own!r}, replaces it",
            where=member.repo,
            next=f"give this family another name at {release.family.where('family', 'name')}",
            member=member.id,
        )
    ]


def _caught_all(work: Callable[[], Iterator[Finding]], member: str) -> list[Finding]:
    try:
        return list(work())
    except HubtoolsError as error:
        return [as_finding(error, member)]


def _caught(work: Callable[[], object], member: str = "") -> list[Finding]:
    try:
        work()
    except HubtoolsError as error:
        return [as_finding(error, member)]
    return []
