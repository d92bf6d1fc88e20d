"""What is known of a checkpoint's training and of how its weights were made, as facts.

The engines' reports are published as one file, so that each figure on a card has a place to point
to; no path of this machine is in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hubtools.checkpoint.adapter import AdapterConfig, open_adapter, read_adapter_config
from hubtools.checkpoint.facts import checkpoint_facts
from hubtools.checkpoint.inspect import DTYPES
from hubtools.checkpoint.kinds import named_step
from hubtools.checkpoint.trainer import TrainerState, read_trainer_state
from hubtools.digests import canonical_json, sha256_bytes, weights_digest
from hubtools.facts import Fact, Source, Subject
from hubtools.family.manifest import Member
from hubtools.release.context import Release
from hubtools.release.ingested import ingest_job, is_ingested
from hubtools.release.stages.base import input_digests
from hubtools.release.weights import Weights

PUBLISHED = ".hubtools/weights.json"
"""Where the engines' reports stand in the repo, as canonical JSON."""

SCHEMA = "hubtools.weights/1"
_MERGE = (
    "engine", "arithmetic", "versions", "options", "config", "notes", "tensors", "changed_tensors",
    "replaced", "added", "removed", "ranks", "scalings", "classes", "dtypes", "adapters", "finite",
    "changed_elements", "moved_elements", "kinds",
)  # fmt: skip
_INGEST = (
    "kind", "source", "world_size", "step", "tensors", "elements", "dtypes_in", "dtypes_out",
    "rounded_elements", "dropped", "checked_against",
)  # fmt: skip
_PARTS = (
    "actor", "huggingface", "hf_model", "lora_adapter", "distributed_checkpoint",
    "pytorch_model_fsdp_0",
)  # fmt: skip
_PATH = re.compile(r"(?<![\w.])(?:~|\.{1,2})?/[^\s,;()]+")


def training_facts(release: Release, member: Member, weights: Weights, digest: str) -> list[Fact]:
    """`train.*` facts of the run: trainer state, adapter configuration, and claims by name.

    The step in a directory's name and an alpha that the manifest states are words, not
    measurements: their facts are `reported`.

    Args:
        release: for the manifest and paths.
        member: whose they are.
        weights: what was made.
        digest: of the published weights.
    """
    run = member.checkpoint
    assert run is not None
    trainer, config = trainer_state(release, member), _adapter(release, member, weights)
    path = release.relative(run)
    facts = checkpoint_facts(trainer, config, run=run, member=member.id, weights=digest, path=path)
    known = {fact.id for fact in facts}
    step = claimed_step(weights_folder(release, member))
    if "train.optimizer_steps" not in known and step is not None:
        quote = f"the name of the run's directory: “{step.folder.name}”"
        source = Source(path, "", "", quote)
        subject = Subject(member.id)
        facts.append(Fact("train.optimizer_steps", step.step, "reported", source, subject, "steps"))
    alpha = release.family.manifest.ingest.lora_alpha
    if config is not None and alpha is not None and is_ingested(run):
        facts = [fact for fact in facts if fact.id != "train.lora_alpha"]
        quote = f"the manifest: “lora_alpha = {alpha:g}”"
        source = Source(release.family.path.name, "", "", quote)
        facts.append(Fact("train.lora_alpha", alpha, "reported", source, Subject(member.id)))
    return facts


class Claim(NamedTuple):
    """A step by name, and the directory that has the name."""

    step: int
    folder: Path


def claimed_step(folder: Path) -> Claim | None:
    """The step that a directory is named after, or the one it is a part of: its owner's word."""
    place = folder
    while place.name in _PARTS:
        place = place.parent
    step = named_step(place.name)
    return None if step is None else Claim(step, place)


def public_report(release: Release, member: Member, weights: Weights) -> bytes | None:
    """The file that tells how the weights were made; None when they are published as they were."""
    if not weights.reports:
        return None
    report: dict[str, Any] = {"schema": SCHEMA}
    if "ingest" in weights.reports:
        made = weights.reports["ingest"]
        report["ingest"] = {name: made[name] for name in _INGEST if name in made}
        report["ingest"]["sources"] = _sources(release, member)
    if "merge" in weights.reports:
        made, base = weights.reports["merge"], release.base_path()
        assert base is not None
        report["merge"] = {name: made[name] for name in _MERGE if name in made}
        report["merge"]["notes"] = [_public(note) for note in made["notes"]]
        files = input_digests(release, base)
        own = {name: sha for name, sha in files.items() if name.endswith(".safetensors")}
        report["merge"]["base"] = weights_digest(own)
    return canonical_json(report)


def made_facts(report: bytes, data: Mapping[str, Any], member: str, weights: str) -> list[Fact]:
    """Facts from the published report.

    Args:
        report: its bytes.
        data: what they say.
        member: whose facts they are.
        weights: digest of the published weights.
    """
    digest = sha256_bytes(report)
    return [
        Fact(id, value, "measured", Source(PUBLISHED, digest, pointer), Subject(member, weights))
        for id, value, pointer in (*_merge_values(data), *_ingest_values(data))
    ]


def _merge_values(data: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    merge = data.get("merge")
    if merge is None:
        return
    for name in ("tensors", "changed_tensors", "arithmetic"):
        yield f"merge.{name}", merge[name], f"/merge/{name}"
    for index, note in enumerate(merge["notes"]):
        yield f"merge.note.{index}", note, f"/merge/notes/{index}"
    for kind, found in merge["kinds"].items():
        place = f"/merge/kinds/{kind.replace('~', '~0').replace('/', '~1')}"
        for name in ("tensors", "relative_change", "unmoved_share"):
            if found[name] is not None:
                yield f"merge.kinds.{kind}.{name}", found[name], f"{place}/{name}"


def _ingest_values(data: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    ingest = data.get("ingest")
    if ingest is None:
        return
    for name in ("source", "world_size", "elements", "rounded_elements"):
        yield f"ingest.{name}", ingest[name], f"/ingest/{name}"
    for name in ("dtypes_in", "dtypes_out"):
        words = sorted(DTYPES.get(dtype, dtype) for dtype in ingest[name])
        yield f"ingest.{name}", words, f"/ingest/{name}"


def weights_folder(release: Release, member: Member) -> Path:
    """Where the trainer's weights lie: the run's directory, or one inside it."""
    assert member.checkpoint is not None
    ingested = is_ingested(member.checkpoint)
    return ingest_job(release, member).source.folder if ingested else member.checkpoint


def _public(note: str) -> str:
    """A note of the planner without advice on options, and without paths of this machine."""
    return _PATH.sub("a local path", re.sub(r"; --[^;]*", "", note))


def trainer_state(release: Release, member: Member) -> TrainerState | None:
    """What the trainer wrote beside the weights, or above them."""
    run = member.checkpoint
    assert run is not None
    places = [run]
    if is_ingested(run):
        folder = weights_folder(release, member)
        places += [folder, folder.parent]
    return next((state for place in places if (state := read_trainer_state(place))), None)


def _adapter(release: Release, member: Member, weights: Weights) -> AdapterConfig | None:
    if release.family.manifest.family.kind == "full":
        return None
    assert member.checkpoint is not None
    if not is_ingested(member.checkpoint):
        return open_adapter(member.checkpoint, release.scratch).config
    source = ingest_job(release, member).source
    made = release.at(weights.made[0]["folder"])
    return read_adapter_config(source.folder if source.kind == "lora" else made)


def _sources(release: Release, member: Member) -> dict[str, str]:
    """The trainer's weight files by name in the run, with their sha256."""
    job = ingest_job(release, member)
    return {
        (f.relative_to(job.run).as_posix() if f.is_relative_to(job.run) else f.name): (
            release.digests.sha256(f)
        )
        for f in job.source.files
    }
