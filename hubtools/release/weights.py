"""From a run's directory to the files that are published: as they are, taken in, or merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hubtools.checkpoint.carry import publishable_files
from hubtools.checkpoint.merging.merge import merge
from hubtools.checkpoint.merging.options import MergeOptions
from hubtools.family.manifest import Member
from hubtools.progress import labelled
from hubtools.release.context import Release
from hubtools.release.freed import delete_files
from hubtools.release.ingested import ingest_base, is_ingested


@dataclass
class Weights:
    """The files of one checkpoint.

    Args:
        folder: where they lie.
        files: name in the repo → {size, sha256, source}.
        made: folders that were written for them, with the sha256 of every file; none of the user's.
        reports: what `ingest` and `merge` say they did, by their name.
    """

    folder: Path
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    made: list[dict[str, Any]] = field(default_factory=list)
    reports: dict[str, Mapping[str, Any]] = field(default_factory=dict)


def made_folder(member: Member, key: str, suffix: str = "") -> Path:
    """Where the weights of this stage key are written."""
    return member.merged.with_name(f"{member.merged.name}-{key[:8]}{suffix}")


def make_weights(release: Release, member: Member, key: str) -> Weights:
    """Take a trainer's shards in, merge an adapter, or take the files as they are.

    Args:
        release: manifest, base, logs.
        member: whose weights.
        key: of the stage; names the folders that are written.

    Raises:
        HubtoolsError: as `ingest` and `merge`; nothing half-written is left.
    """
    assert member.checkpoint is not None
    kind = release.family.manifest.family.kind
    weights = Weights(member.checkpoint)
    if is_ingested(member.checkpoint):
        _ingest(release, member, key, weights)
    if kind == "merged":
        _merge(release, member, key, weights)
    elif not weights.made:
        weights.files = _described(release, publishable_files(weights.folder, kind))
    return weights


def merge_options(release: Release) -> MergeOptions:
    """What the manifest decides about a merge."""
    table = release.family.manifest.merge
    return MergeOptions(
        keep_tied=table.keep_tied, dtype=table.dtype, base_is_residual=table.base_is_residual
    )


def merge_inputs(release: Release) -> dict[str, Any]:
    """Everything but files that a merge depends on: the engine, and what the manifest decides."""
    engine = release.family.manifest.merge.engine
    versions = (
        {n: version(n) for n in ("peft", "torch", "transformers")} if engine == "peft" else {}
    )
    return {"engine": engine, "versions": versions, **merge_options(release).to_json()}


def _ingest(release: Release, member: Member, key: str, weights: Weights) -> None:
    from hubtools.checkpoint.ingesting.ingest import ingest

    merged_later = release.family.manifest.family.kind == "merged"
    out = made_folder(member, key, "-adapter" if merged_later else "")
    table = release.family.manifest.ingest
    _clear(release, key, out)
    result = ingest(
        weights.folder,
        out,
        base=ingest_base(release),
        dtype=table.dtype,
        lora_alpha=table.lora_alpha,
        log=release.log(f"ingest-{member.id}"),
        progress=labelled(release.progress, f"ingest {member.id}"),
    )
    _take(release, weights, out, result, "ingest")


def _merge(release: Release, member: Member, key: str, weights: Weights) -> None:
    base, out = release.base_path(), made_folder(member, key)
    assert base is not None
    _clear(release, key, out)
    result = merge(
        [weights.folder],
        base,
        out,
        options=merge_options(release),
        engine=release.family.manifest.merge.engine,
        log=release.log(f"merge-{member.id}"),
        progress=labelled(release.progress, f"merge {member.id}"),
    )
    _take(release, weights, out, result, "merge")


def _take(
    release: Release, weights: Weights, out: Path, result: Mapping[str, Any], what: str
) -> None:
    """The result of an engine, with every digest that it computed while writing."""
    for name, entry in result["files"].items():
        release.digests.remember(out / name, entry["sha256"])
    weights.files = {
        name: {**entry, "source": release.stored(out / name)}
        for name, entry in result["files"].items()
    }
    digests = {name: entry["sha256"] for name, entry in result["files"].items()}
    weights.made.append({"folder": release.stored(out), "files": digests})
    weights.reports[what] = result["report"]
    weights.folder = out


def _clear(release: Release, key: str, out: Path) -> None:
    """Make room where an earlier result of this key lost its weights, or had them deleted.

    Only files that still are what was written go; the engine refuses to write over others.
    """
    record = release.store.get("merge", key)
    if record is None or not out.is_dir():
        return
    for made in record.outputs["made"]:
        if made["folder"] != release.stored(out):
            continue
        files = {out / name: sha256 for name, sha256 in made["files"].items()}
        there = [file for file in files if file.is_file()]
        if len(there) < len(files):
            delete_files(out, [f for f in there if release.digests.sha256(f) == files[f]])


def _described(release: Release, files: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "size": path.stat().st_size,
            "sha256": release.digests.sha256(path),
            "source": release.stored(path),
        }
        for name, path in files.items()
    }
