"""Walk the stages over the members: settle what is known, run what is not, publish at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hubtools.errors import CheckError, HubtoolsError, PartialError
from hubtools.family.manifest import Member
from hubtools.release.context import Release
from hubtools.release.freed import free_weights
from hubtools.release.plan import Cell
from hubtools.release.stages import LOCAL_STAGES
from hubtools.release.stages.attest import attest
from hubtools.release.stages.base import Stage
from hubtools.release.stages.push import Prepared, prepare, publish
from hubtools.release.store import Record, stage_key
from hubtools.settings import LOCAL
from hubtools.sizes import size_words

Failures = dict[str, HubtoolsError]


def walk(release: Release, *, execute: bool) -> tuple[list[Cell], Failures]:
    """Settle every local stage of every member; with `execute`, run the targets' pending ones.

    Members that were not named are looked at, never run: what is remembered of them is shown on
    the targets' cards. A member that fails is left behind, the others go on.

    Returns:
        The cells of the targets (and the base), and the failures by target.

    Raises:
        CheckError: the teacher's verdict stops the whole release.
    """
    cells: list[Cell] = []
    failures: Failures = {}
    named = {member.id for member in release.targets}
    # Targets first: what they run may be shared with sisters, who are only looked at.
    others = (m for m in release.family.members if m.id not in named)
    members = (*release.targets, *others)
    for stage in LOCAL_STAGES:
        for member in stage.targets(release, members):
            wanted = member.id in named or member.id == release.base_member.id
            if member.id in failures:
                continue
            try:
                cell = settle(release, stage, member, execute=execute and wanted)
            except HubtoolsError as error:
                if not wanted:  # a sister that cannot be read lends no facts
                    release.note(f"! {stage.name} {member.id}: {error}")
                    continue
                release.journal.write("failed", member.id, stage=stage.name, error=error.id)
                if stage.name == "verify":
                    raise
                failures[member.id] = error
                release.failed.add(member.id)
                continue
            finally:
                release.digests.save()
            if wanted:
                cells.append(cell)
    return cells, failures


def settle(release: Release, stage: Stage, member: Member, *, execute: bool) -> Cell:
    """One stage of one target: skipped, remembered, run, or said to wait."""
    place = (stage.name, member.id)
    reason = stage.skip(release, member)
    if reason:
        return Cell(*place, "skip", reason)
    waits = _missing(release, stage, member) or stage.waits_for(release, member)
    if waits:
        return Cell(*place, "waits", f"for {waits}")
    inputs = stage.inputs(release, member)
    target = stage.record_target(member)
    key = stage_key(stage.name, stage.version, target, inputs)
    record = release.store.get(stage.name, key)
    again = ""
    if record is not None and stage.whole(release, record.outputs):
        release.done[place] = record.outputs
        again = stage.again(release, member, record.outputs)
        if not again:
            return Cell(*place, "cached", stage.remark(release, record.outputs), key=key)
        del release.done[place]
    if execute:
        if again:
            release.note(f"· {stage.name:9} {target} again: {again}")
        release.done[place] = _run(release, stage, member, key, inputs)
    return Cell(*place, "run", again, key=key)


def _run(
    release: Release, stage: Stage, member: Member, key: str, inputs: Mapping[str, Any]
) -> Mapping[str, Any]:
    release.journal.write("started", member.id, stage=stage.name, key=key)
    outputs = stage.run(release, member, key)
    target = stage.record_target(member)
    release.store.put(Record(stage.name, stage.version, target, key, inputs, outputs))
    release.journal.write("finished", member.id, stage=stage.name, key=key)
    release.note(f"✓ {stage.name:9} {target}  {stage.summary(outputs)}".rstrip())
    return outputs


def _missing(release: Release, stage: Stage, member: Member) -> str:
    """The first earlier stage of this target that should have run and has not."""
    by_name = {earlier.name: earlier for earlier in LOCAL_STAGES}
    if member.id == release.base_member.id:
        return ""
    for name in stage.after:
        earlier = by_name[name]
        if (name, member.id) not in release.done and not earlier.skip(release, member):
            return name
    return ""


def publish_all(
    release: Release, ready: tuple[Member, ...], failures: Failures
) -> dict[str, dict[str, Any]]:
    """Blobs of every repo, then one commit per repo, then the receipts.

    A repo that fails at any point is left behind with its error in `failures`.

    Returns:
        member → receipt with the commit, of every repo that is now as planned.
    """
    prepared: dict[str, Prepared | None] = {}
    receipts: dict[str, dict[str, Any]] = {}

    def each(members: tuple[Member, ...], work: Callable[[Member], None]) -> None:
        for member in members:
            if member.id in failures:
                continue
            try:
                work(member)
            except HubtoolsError as error:
                release.journal.write("failed", member.id, stage="push", error=error.id)
                failures[member.id] = error

    def send(member: Member) -> None:
        prepared[member.id] = prepare(release, member)

    def make(member: Member) -> None:
        waiting = prepared[member.id]
        if waiting is None:
            head = release.remotes[member.repo].head
            receipts[member.id] = {"repo": member.repo, "commit": head, "pushed": False}
            return
        result = publish(release, waiting)
        release.note(f"✓ commit    {member.id} {result.oid[:7]} {member.repo}")
        receipts[member.id] = {"repo": member.repo, "commit": result.oid, "pushed": True}

    def prove(member: Member) -> None:
        receipt = attest(release, member)
        n = len(receipt["files"])
        there = f"{n}/{n} files of {member.repo} are listed there with their digests"
        release.note(f"✓ attest    {member.id} {there}")
        receipts[member.id] |= receipt
        if release.weights == "delete":
            _delete_weights(release, member)

    for step in (send, make, prove):
        each(ready, step)
    return {name: receipt for name, receipt in receipts.items() if name not in failures}


def _delete_weights(release: Release, member: Member) -> None:
    if release.hub == LOCAL:
        release.note(f"· deleted   nothing of {member.id}; this is a rehearsal: the weights stay")
        return
    size = free_weights(release, member)
    if size:
        release.note(f"✓ deleted   {member.id} {size_words(size)} of published weights")


def raise_failures(release: Release, failures: Failures, finished: int) -> None:
    """End with the right error: the only one itself, or exit 6 that names what remains.

    Raises:
        HubtoolsError: nothing else was finished and all failed for one reason.
        PartialError: HT502; when nothing was finished, an error of the failures' own kind.
    """
    if not failures:
        return
    errors = list(failures.values())
    if not finished and len({(error.id, error.message) for error in errors}) == 1:
        raise errors[0]
    if not finished and "base" in failures:
        raise failures["base"]
    left = [member.id for member in release.targets if member.id in failures]
    alike = len({error.exit_code for error in errors}) == 1
    kind = PartialError if finished else type(errors[0]) if alike else CheckError
    raise kind(
        "HT502",
        f"{finished} of {len(release.targets)} released; {len(left)} not: {', '.join(left)}",
        where=str(release.family.path),
        detail=[f"{name}: {error}" for name, error in failures.items()],
        next=errors[0].next or "run the same command again (done work is cached)",
    )
