"""evaluate: the manifest's suites on the base and on every member, the same items for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hubtools.digests import sha256_file, sha256_json, weights_digest
from hubtools.evaluation.bridge import planned_protocol
from hubtools.evaluation.executors.job import jobs_of, run_job
from hubtools.evaluation.records import SAMPLES, Run, read_run
from hubtools.evaluation.run_facts import repeated_facts, repeats_record, run_facts
from hubtools.evaluation.spec import Target
from hubtools.facts import Fact
from hubtools.family.manifest import Member
from hubtools.files import write_json
from hubtools.release.cells import Wanted, cell, published_repeats, published_run, wanted
from hubtools.release.context import BASE, Release
from hubtools.release.stages.base import Stage, input_digests


class Evaluate(Stage):
    """Runs, append-only: another weights digest, protocol or seed is another run."""

    name = "evaluate"
    version = 5
    after = ("merge",)

    def targets(self, release: Release, members: tuple[Member, ...]) -> tuple[Member, ...]:
        """The members, and the base that their tables compare with."""
        return (release.base_member, *members) if _suites(release) else members

    def skip(self, release: Release, member: Member) -> str:
        """Without suites the card says that nothing was evaluated."""
        return "" if _suites(release) else "no suites"

    def waits_for(self, release: Release, member: Member) -> str:
        """The base model, where it is read and not here yet."""
        return "the base model's files" if release.lacks_base() else ""

    def inputs(self, release: Release, member: Member) -> Mapping[str, Any]:
        """The model's files, and of every run its protocol and seed."""
        target = _target(release, member)
        return {
            "model": _model_digests(release, member),
            "runs": {
                want.name: planned_protocol(cell(release, want, target, Path()))
                for want in wanted(release)
            },
        }

    def summary(self, outputs: Mapping[str, Any]) -> str:
        """The headline metrics, with k/n where they have one."""
        words = []
        for fact in outputs["facts"]:
            if isinstance(fact["value"], float) and fact["id"].count(".") == 2:
                count = f" ({fact['k']}/{fact['n']})" if "k" in fact else ""
                words.append(f"{fact['id'].removeprefix('eval.')} {fact['value']:.3f}{count}")
        return ", ".join(words)

    def run(self, release: Release, member: Member, key: str) -> Mapping[str, Any]:
        """Every suite in turn on one engine; a finished run is never done again."""
        target = _target(release, member)
        out = release.state / "runs" / sha256_json(_model_digests(release, member))[:16]
        wants = list(wanted(release))
        (job,) = jobs_of([cell(release, want, target, out) for want in wants])
        log = release.log(f"evaluate-{member.id}")
        records = run_job(job, log=log, progress=release.progress)
        runs = [read_run(Path(record["path"])) for record in records]
        repeats, facts = _facts(release, member, wants, runs)
        return {
            "weights": target.weights,
            "runs": [_kept(release, *pair) for pair in zip(wants, runs, strict=True)],
            "repeats": repeats,
            "facts": [fact.to_json() for fact in facts],
        }

    def whole(self, release: Release, outputs: Mapping[str, Any]) -> bool:
        """Every record and its samples are there, unchanged."""
        files = {release.state / entry["path"]: entry["sha256"] for entry in outputs["repeats"]}
        for entry in outputs["runs"]:
            file = release.state / entry["path"]
            files |= {file: entry["sha256"], file.with_name(SAMPLES): entry["samples"]}
        return all(
            file.is_file() and release.digests.sha256(file) == digest
            for file, digest in files.items()
        )


def _suites(release: Release) -> tuple[str, ...]:
    return release.family.manifest.family.suites


def _kept(release: Release, want: Wanted, run: Run) -> dict[str, Any]:
    return {
        "name": want.name,
        "suite": want.suite,
        "seed": want.seed,
        "path": str(run.path.relative_to(release.state)),
        "sha256": run.sha256,
        "samples": sha256_file(run.path.with_name(SAMPLES)),
    }


def _facts(
    release: Release, member: Member, wants: Sequence[Wanted], runs: Sequence[Run]
) -> tuple[list[dict[str, Any]], list[Fact]]:
    """Records of repeats, and the facts: of each run, or of its repeats together."""
    groups: dict[str, list[tuple[Wanted, Run]]] = {}
    for want, run in zip(wants, runs, strict=True):
        groups.setdefault(replace(want, seed=0).name, []).append((want, run))
    kept, facts = [], []
    for pairs in groups.values():
        paths = [published_run(member, want.name) for want, _ in pairs]
        if len(pairs) == 1:
            facts += run_facts(pairs[0][1], path_in_facts=paths[0])
            continue
        repeated = [run for _, run in pairs]
        name = published_repeats(member, pairs[0][0])
        file = repeated[0].path.parents[1] / f"repeats-{sha256_json(paths)[:12]}.json"
        write_json(file, repeats_record(repeated, paths))
        digest = sha256_file(file)
        entry = {"name": name, "path": str(file.relative_to(release.state)), "sha256": digest}
        kept.append(entry)
        facts += repeated_facts(repeated, path_in_facts=name, sha256=digest)
    return kept, facts


def _target(release: Release, member: Member) -> Target:
    base = release.base_path()
    if member.id == BASE:
        assert base is not None
        digests = input_digests(release, base)
        weights = {name: d for name, d in digests.items() if name.endswith(".safetensors")}
        return Target(BASE, weights_digest(weights), base)
    outputs = release.done[("merge", member.id)]
    folder = release.at(outputs["folder"])
    if release.family.manifest.family.kind == "adapter":
        assert base is not None
        return Target(member.id, outputs["weights"], base, folder)
    return Target(member.id, outputs["weights"], folder)


def _model_digests(release: Release, member: Member) -> dict[str, Any]:
    base = release.base_path()
    if member.id == BASE:
        assert base is not None
        return {"files": input_digests(release, base)}
    outputs = release.done[("merge", member.id)]
    files = {name: entry["sha256"] for name, entry in outputs["files"].items()}
    adapter = release.family.manifest.family.kind == "adapter" and base is not None
    return {"files": files, "base": input_digests(release, base) if adapter and base else {}}
