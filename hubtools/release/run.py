"""plan and release: the two commands, without their terminal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hubtools.errors import CheckError, Finding, HubtoolsError, UsageError
from hubtools.family.manifest import Member
from hubtools.files import locked, write_json
from hubtools.hub.diff import diff_files
from hubtools.hub.model import README
from hubtools.hub.remote import read_remote
from hubtools.release.base import compare_base, fetch_base, find_base
from hubtools.release.context import Release
from hubtools.release.engine import publish_all, raise_failures, walk
from hubtools.release.plan import Cell, Plan, RepoChange
from hubtools.release.refuse import as_finding, refuse, told
from hubtools.release.stages.check import check_local, check_remote
from hubtools.release.stages.push import local_files


def make_plan(release: Release) -> Plan:
    """Look at everything, change nothing; remotes are read into `release`.

    Raises:
        AuthError, EnvironmentFailure: the Hub does not let itself be asked, and nothing is wrong
            on this machine.
    """
    find_base(release)
    findings = check_local(release)
    try:
        nameless = any(finding.id == "HT311" for finding in findings)
        if release.session is not None and not nameless:
            read_remotes(release)
            findings += check_remote(release)
        findings += compare_base(release)
    except HubtoolsError as error:
        if not any(finding.level == "error" for finding in findings):
            raise
        findings.append(as_finding(error))
    cells: list[Cell] = []
    if not any(finding.level == "error" for finding in findings):
        cells, failures = walk(release, execute=False)
        findings += [as_finding(error, name) for name, error in failures.items()]
    return _with_work(
        Plan(
            family=release.family.manifest.family.id,
            hub=release.hub,
            targets=tuple(member.id for member in release.targets),
            cells=(),
            repos=(),
            findings=tuple(findings),
        ),
        release,
        cells,
    )


def _with_work(plan: Plan, release: Release, cells: list[Cell]) -> Plan:
    return replace(
        plan,
        cells=tuple(cells),
        repos=tuple(_change(release, member) for member in release.targets),
        sisters=_sisters(release),
    )


def run_release(
    release: Release,
    *,
    confirm: Callable[[Plan], None],
    show: Callable[[Plan], None],
    first: Callable[[Plan], None] = lambda plan: None,
    dry_run: bool = False,
    only_push: bool = False,
) -> dict[str, Any]:
    """Plan, do the local work, ask once, publish, attest.

    Args:
        release: the targets and the Hub.
        confirm: called once, just before the push, when there is something to push; raises to stop.
        show: called with the plan before anything happens.
        first: called with the plan before a base is fetched for it; raises to stop.
        dry_run: all local stages, no push.
        only_push: no local stage; what is not sealed is refused.

    Returns:
        The receipt: plan id, and per member repo, commit and whether it was pushed now.

    Raises:
        CheckError: findings, or a verdict, stopped it before any work.
        UsageError: HT505, `only_push` and something is not sealed.
        PartialError: HT502, some members were released and some were not.
    """
    with locked(release.state / "lock", f"family {release.family.manifest.family.id}"):
        plan = make_plan(release)
        first(plan)
        if release.lacks_base() and not plan.errors():  # cheap before dear
            fetch_base(release)
            plan = make_plan(release)
        show(plan)
        refuse(plan.findings)
        release.journal.write("release", plan.id, targets=list(plan.targets))
        if only_push:
            _refuse_unsealed(release)
        cells, failures = walk(release, execute=not only_push)
        if "base" in failures:
            raise_failures(release, failures, 0)
        ready = tuple(m for m in release.targets if ("seal", m.id) in release.done)
        plan_now = _with_work(plan, release, cells)
        receipts: dict[str, dict[str, Any]] = {}
        if not dry_run and ready:
            if any(change.action in ("create", "update") for change in plan_now.repos):
                _tell_overwrites(release, plan_now)
                confirm(plan_now)
                before_push(release)
            receipts = publish_all(release, ready, failures)
        result = {
            "plan": plan.id,
            "hub": plan.hub,
            "dry_run": dry_run,
            "members": receipts,
            "failed": {name: error.to_json() for name, error in failures.items()},
        }
        if not dry_run:
            write_json(release.state / "releases" / f"{plan.id}.json", result)
        raise_failures(release, failures, len(ready if dry_run else receipts))
        release.journal.write("released", plan.id)
        return result


def _refuse_unsealed(release: Release) -> None:
    left = [member.id for member in release.targets if ("seal", member.id) not in release.done]
    if left:
        raise UsageError(
            "HT505",
            f"not ready to push: {', '.join(left)}",
            where=str(release.family.path),
            detail=("Their local stages are not done, or something they read has changed.",),
            next=f"hubtools release {release.family.root} (does them, then pushes)",
        )


def _tell_overwrites(release: Release, plan: Plan) -> None:
    """Somebody's files are replaced only after it was said; the old ones stay in the history."""
    for change in plan.repos:
        names = [name for name in change.overwrites if name != README]
        if names:
            message = (
                f"replaces files on {change.repo} that no release of ours wrote as they are:"
                f" {', '.join(names)}"
            )
            release.note(told(Finding("HT527", "warning", message, member=change.target)))


def before_push(release: Release) -> None:
    """Run the manifest's own command, in its folder, once the push was agreed to.

    Raises:
        CheckError: HT522 when it exits with anything but 0; nothing was pushed.
    """
    command = release.family.manifest.hooks.before_push
    if not command:
        return
    release.note(f"· hook {command}")
    ended = subprocess.run(command, shell=True, cwd=release.family.root, stdout=sys.stderr)
    if ended.returncode != 0:
        raise CheckError(
            "HT522",
            f"the before_push hook ended with {ended.returncode}: {command}",
            where=release.family.where("hooks", "before_push"),
            detail=("Nothing was pushed; local work is kept.",),
            next="make it pass, then run the same command again",
        )


def read_remotes(release: Release) -> None:
    """Read the state of every member's repo once.

    Raises:
        AuthError, EnvironmentFailure: as the Hub answers.
    """
    assert release.session is not None
    for member in release.family.members:
        if member.repo not in release.remotes:
            release.remotes[member.repo] = read_remote(release.session, member.repo)


def _change(release: Release, member: Member) -> RepoChange:
    remote = release.remotes.get(member.repo)
    visibility = release.family.manifest.family.visibility
    if remote is None:
        return RepoChange(member.repo, member.id, "unknown", visibility=visibility)
    if ("seal", member.id) not in release.done:
        return RepoChange(
            member.repo,
            member.id,
            "waits",
            head=remote.head or "",
            card="waits",
            visibility="" if remote.exists else visibility,
        )
    diff = diff_files(remote, local_files(release, member))
    changed = {file.path for file in diff.change}
    added = {file.path for file in diff.add}
    return RepoChange(
        member.repo,
        member.id,
        "create" if not remote.exists else "in sync" if diff.empty else "update",
        head=remote.head or "",
        add=len(diff.add),
        change=len(diff.change),
        delete=len(diff.delete),
        send=diff.size,
        card="new" if README in added else "differs" if README in changed else "same",
        visibility="" if remote.exists else visibility,
        overwrites=diff.overwrites,
    )


def _sisters(release: Release) -> tuple[str, ...]:
    """Members not named whose published card is not what it would be now."""
    named = {member.id for member in release.targets}
    stale = []
    for member in release.family.members:
        remote = release.remotes.get(member.repo)
        if member.id in named or remote is None or not remote.exists:
            continue
        card = release.done.get(("render", member.id))
        if card is None or card["files"][README]["sha256"] != remote.readme_sha256:
            stale.append(member.id)
    return tuple(stale)
