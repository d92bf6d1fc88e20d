"""What a merge is made from: its identity, and whether it stayed the same while it was read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hubtools.checkpoint.adapter import CONFIG, PICKLE, Adapter
from hubtools.checkpoint.carry import small_files
from hubtools.checkpoint.merging.options import MergeOptions
from hubtools.checkpoint.shards import INDEX, Weights
from hubtools.digests import sha256_bytes, sha256_file, sha256_json
from hubtools.errors import EnvironmentFailure

ENGINE_VERSION = 2


def weight_stamps(adapters: Sequence[Adapter], weights: Weights) -> list[list[Any]]:
    """Place, inode, size and time of every weight file that is read; `weights` are the base's."""
    files = [header.path for header in weights.headers.values()]
    for adapter in adapters:
        own = adapter.weights.parent == adapter.path
        files.append(adapter.weights if own else adapter.path / PICKLE)
    stamps = []
    for file in files:
        stat = file.stat()
        stamps.append([str(file.resolve()), stat.st_ino, stat.st_size, stat.st_mtime_ns])
    return stamps


def identity(
    adapters: Sequence[Adapter],
    base: Path,
    weights: Weights,
    options: MergeOptions,
    engine: Sequence[str],
) -> str:
    """One name for inputs and arithmetic; weights count by their stamps, small files by content."""
    folders = [folder for a in adapters for folder in dict.fromkeys((a.named, a.path))]
    small = {name: file.data for name, file in small_files(folders, base, {}).items()}
    index = base / INDEX
    return sha256_json({
        "version": ENGINE_VERSION,
        "engine": list(engine),
        "options": options.to_json(),
        "small": {name: sha256_bytes(data) for name, data in small.items()},
        "index": sha256_file(index) if weights.index is not None else "",
        "configs": [sha256_file(adapter.path / CONFIG) for adapter in adapters],
        "weights": weight_stamps(adapters, weights),
    })  # fmt: skip


def require_unchanged(
    adapters: Sequence[Adapter], weights: Weights, stamps: list[list[Any]]
) -> None:
    """Refuse a result made from files that changed since `stamps` were taken.

    Raises:
        EnvironmentFailure: HT155, naming the first such file.
    """
    for before, now in zip(stamps, weight_stamps(adapters, weights), strict=True):
        if before != now:
            raise EnvironmentFailure(
                "HT155",
                "a weight file changed while it was merged",
                where=str(now[0]),
                detail=("The result would be of no single input; it was removed.",),
                next="wait until nothing writes there any more, then run the same command again",
            )
