"""evaluate: the manifest's suites on the base and on every member, the same items for all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubtools.digests import sha256_file, sha256_json, weights_digest
from hubtools.evaluation.bridge import evaluate, planned_protocol
from hubtools.evaluation.records import SAMPLES, read_run
from hubtools.evaluation.run_facts import run_facts
from hubtools.evaluation.spec import Cell, Engine, Target
from hubtools.family.manifest import Member
from hubtools.progress import labelled
from hubtools.release.context import BASE, Release
from hubtools.release.stages.base import Stage, input_digests


class Evaluate(Stage):
    """Runs, append-only: another weights digest, protocol or seed is another run."""

    name = "evaluate"
    version = 3
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
        """The model's files, the suites, their protocols and the seed."""
        table = release.family.manifest.evaluation
        return {
            "model": _model_digests(release, member),
            "suites": {suite: _protocol(release, member, suite) for suite in _suites(release)},
            "seed": table.seed,
        }

    def summary(self, outputs: Mapping[str, Any]) -> str:
        """The headline metrics, with k/n where they have one."""
        words = []
        for fact in outputs["facts"]:
            if fact.get("unit") == "proportion" or "k" in fact:
                count = f" ({fact['k']}/{fact['n']})" if "k" in fact else ""
                words.append(f"{fact['id'].removeprefix('eval.')} {fact['value']:.3f}{count}")
        return ", ".join(words)

    def run(self, release: Release, member: Member, key: str) -> Mapping[str, Any]:
        """Each suite in a child process; a finished run is never done again."""
        _, _, weights = _model(release, member)
        seed, runs, facts = release.family.manifest.evaluation.seed, [], []
        for suite in _suites(release):
            protocol = _protocol(release, member, suite)
            name = sha256_json([_model_digests(release, member), protocol, seed])[:16]
            out = release.state / "runs" / name
            record = evaluate(
                _cell(release, member, suite, out),
                log=release.log(f"evaluate-{member.id}"),
                progress=labelled(release.progress, f"evaluate {member.id} on {suite}"),
            )
            file = Path(record["path"])
            runs.append(
                {"suite": suite, "seed": seed, "path": str(file.relative_to(release.state))}
            )
            runs[-1] |= {"sha256": sha256_file(file), "samples": record["samples_sha256"]}
            facts += run_facts(read_run(file), path_in_facts=published_run(member, suite, seed))
        return {"weights": weights, "runs": runs, "facts": [fact.to_json() for fact in facts]}

    def whole(self, release: Release, outputs: Mapping[str, Any]) -> bool:
        """Every run record and its samples are there, unchanged."""
        return all(
            file.is_file() and release.digests.sha256(file) == digest
            for run in outputs["runs"]
            for file, digest in (
                (release.state / run["path"], run["sha256"]),
                ((release.state / run["path"]).with_name(SAMPLES), run["samples"]),
            )
        )


def published_run(member: Member, suite: str, seed: int) -> str:
    """Where a run's record stands in the repos that show its numbers; its samples are beside it."""
    prefix = "base-" if member.id == BASE else ""
    return f".hubtools/evaluation/{prefix}{suite}-seed{seed}/run.json"


def _suites(release: Release) -> tuple[str, ...]:
    return release.family.manifest.family.suites


def _model(release: Release, member: Member) -> tuple[Path, Path | None, str]:
    """Model folder, adapter folder and weights digest of a target."""
    base = release.base_path()
    if member.id == BASE:
        assert base is not None
        digests = input_digests(release, base)
        weights = {name: d for name, d in digests.items() if name.endswith(".safetensors")}
        return base, None, weights_digest(weights)
    outputs = release.done[("merge", member.id)]
    folder = release.at(outputs["folder"])
    if release.family.manifest.family.kind == "adapter":
        assert base is not None
        return base, folder, outputs["weights"]
    return folder, None, outputs["weights"]


def _cell(release: Release, member: Member, suite: str, out: Path = Path()) -> Cell:
    model, adapter, weights = _model(release, member)
    table = release.family.manifest.evaluation
    return Cell(
        Target(member.id, weights, model, adapter),
        suite,
        Engine(dtype=table.dtype, device=table.device),
        table.seed,
        out,
    )


def _protocol(release: Release, member: Member, suite: str) -> dict[str, Any]:
    return planned_protocol(_cell(release, member, suite))


def _model_digests(release: Release, member: Member) -> dict[str, Any]:
    base = release.base_path()
    if member.id == BASE:
        assert base is not None
        return {"files": input_digests(release, base)}
    outputs = release.done[("merge", member.id)]
    files = {name: entry["sha256"] for name, entry in outputs["files"].items()}
    adapter = release.family.manifest.family.kind == "adapter" and base is not None
    return {"files": files, "base": input_digests(release, base) if adapter and base else {}}
