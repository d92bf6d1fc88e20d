"""check: everything that would stop the release, found before the first byte and told at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from hubtools.card.reported import read_reported
from hubtools.checkpoint.adapter import CONFIG, adapter_folder, open_adapter, read_adapter_config
from hubtools.checkpoint.inspect import inspect_checkpoint
from hubtools.checkpoint.merging.peft_engine import plan_peft
from hubtools.checkpoint.merging.plan import plan_merge
from hubtools.checkpoint.namedbase import other_base
from hubtools.checkpoint.shards import INDEX, SINGLE
from hubtools.errors import Finding, HubtoolsError
from hubtools.evaluation.bridge import planned_protocol
from hubtools.evaluation.spec import Target
from hubtools.family.manifest import Member
from hubtools.hub.diff import ours
from hubtools.hub.model import RemoteState, RepoPlan
from hubtools.hub.preflight import preflight
from hubtools.hub.rules import repo_id_problem
from hubtools.release.adopt import adopted
from hubtools.release.cells import cell, wanted
from hubtools.release.context import Release, lacks_config
from hubtools.release.foresee import disclosed, foreseen, secrets_in_prose, strays
from hubtools.release.ingested import ingest_findings, is_ingested, other_kind
from hubtools.release.made_facts import claimed_step, trainer_state, weights_folder
from hubtools.release.refuse import as_finding, in_manifest
from hubtools.release.stages.push import visibility_marker
from hubtools.release.stages.verify import Verify
from hubtools.release.weights import merge_options


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
    for want in wanted(release):
        told = Path(release.family.where("family", "suites"))  # the place that errors name
        target = Target("", adapter=told if table.kind == "adapter" else None)
        planned = cell(release, want, target, Path())
        findings += _caught(lambda planned=planned: planned_protocol(planned))  # type: ignore[misc]
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
    findings += _unread(release)
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
    fetched = table.base.path is None and table.base.revision is not None
    if fetched and release.lacks_base() and lacks_config(checkpoint):
        return  # looked into once the base, whose configuration it needs, is here
    if is_ingested(checkpoint):
        found = ingest_findings(release, member)
    elif table.kind == "merged":
        found = _to_merge(release, member, checkpoint)
    else:
        found = list(_as_it_is(release, member, checkpoint))
    place = str(release.family.path)
    for finding in found:
        yield replace(finding, next=in_manifest(finding.next, place))
    if any(finding.level == "error" for finding in found):
        return
    yield from _caught_all(lambda: _step(release, member), member.id)
    yield from disclosed(release, member)
    yield from _caught_all(lambda: _named_base(release, member), member.id)


def _unread(release: Release) -> Iterator[Finding]:
    """Options of the manifest that nothing reads."""
    from hubtools.family.schema import IngestTable, MergeTable

    manifest, members = release.family.manifest, release.family.members
    runs = [member.checkpoint for member in members if member.checkpoint is not None]
    unread = {
        "merge": manifest.merge != MergeTable() and manifest.family.kind != "merged",
        "ingest": manifest.ingest != IngestTable() and not any(map(is_ingested, runs)),
    }
    why = {"merge": 'only kind = "merged" does', "ingest": "no member is a trainer's sharded run"}
    for table in filter(unread.get, unread):
        yield Finding(
            "HT530",
            "warning",
            f"nothing reads [{table}]: {why[table]}",
            where=release.family.where(table),
            next=f"remove [{table}] at {release.family.where(table)}",
        )


def _as_it_is(release: Release, member: Member, checkpoint: Path) -> Iterator[Finding]:
    """A model or an adapter whose own files are published."""
    kind = release.family.manifest.family.kind
    try:
        info = inspect_checkpoint(checkpoint)
    except HubtoolsError as error:
        yield as_finding(error, member.id)
        return
    # HT107, a local path as base: the manifest names the base, and what is published is rewritten.
    yield from (finding for finding in info.findings if finding.id != "HT107")
    if info.kind != kind:
        yield other_kind(release.family, member, checkpoint, info.kind)


def _to_merge(release: Release, member: Member, checkpoint: Path) -> list[Finding]:
    """The whole plan where the base is here; else only whether this is an adapter."""
    whole = any((checkpoint / name).is_file() for name in (SINGLE, INDEX))
    if whole and not (checkpoint / CONFIG).is_file():
        return [other_kind(release.family, member, checkpoint, "full")]

    def plan() -> None:
        adapter, base = open_adapter(checkpoint, release.scratch), release.base_path()
        if base is None or not base.is_dir():
            return
        if release.family.manifest.merge.engine == "peft":
            plan_peft([adapter], base, merge_options(release))
        else:
            plan_merge(
                [adapter], base, merge_options(release), log=release.log(f"names-{member.id}")
            )

    return _caught(plan, member.id)


def _named_base(release: Release, member: Member) -> Iterator[Finding]:
    """HT531: the trainer wrote down another base than the one that the card would name."""
    base, run = release.family.manifest.family.base, member.checkpoint
    if release.family.manifest.family.kind == "full" or run is None or is_ingested(run):
        return
    config = read_adapter_config(adapter_folder(run))
    folder = release.base_path()
    commit = base.revision or ""
    other = other_base(config, repo=base.repo, commit=commit, folder=folder)
    if other:
        yield Finding(
            "HT531",
            "warning",
            f"{CONFIG} names the base {other}, and the release says"
            f" {base.repo}{f'@{commit[:7]}' if commit else ''}",
            where=str(config.path),
            next=f"if it was trained on {other}, correct base at"
            f" {release.family.where('family', 'base')}",
            member=member.id,
        )


def _step(release: Release, member: Member) -> Iterator[Finding]:
    """What the trainer, the directory's name and the manifest say about the step must agree."""
    trainer, claimed = trainer_state(release, member), claimed_step(weights_folder(release, member))
    stated = trainer.global_step if trainer is not None else None
    if trainer is not None and stated is not None:
        where, what = str(trainer.path), "its trainer state"
    elif claimed is not None:
        stated, where, what = claimed.step, str(claimed.folder), "its directory's name"
    else:
        return
    if member.optimizer_step not in (None, stated):
        yield Finding(
            "HT516",
            "error",
            f"{member.id} is declared as optimizer step {member.optimizer_step}, but {what}"
            f" says {stated}",
            where=where,
            next=f"correct [inputs] checkpoint or [steps.{member.step}] in {release.family.path}",
            member=member.id,
        )
    elif claimed is not None and claimed.step != stated:
        yield Finding(
            "HT528",
            "warning" if member.declared else "error",
            f"the directory is called {claimed.folder.name}, but its trainer state says {stated}",
            where=where,
            next=f"rename {claimed.folder}, or state the step that is right: [steps.{member.step}]"
            f" optimizer_step = {stated} in {release.family.path}",
            member=member.id,
        )


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
