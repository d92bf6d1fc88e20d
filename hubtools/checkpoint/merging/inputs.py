"""What a merge is made from: its identity, and whether it stayed the same while it was read."""

from __future__ import annotations

from typing import Any

from hubtools.checkpoint.adapter import CONFIG, PICKLE
from hubtools.checkpoint.merging.plan import MergePlan
from hubtools.digests import sha256_bytes, sha256_file, sha256_json
from hubtools.errors import EnvironmentFailure

ENGINE_VERSION = 2


def weight_stamps(plan: MergePlan) -> list[list[Any]]:
    """Place, inode, size and time of every weight file that is read."""
    files = [header.path for header in plan.weights.headers.values()]
    for adapter in plan.adapters:
        own = adapter.weights.parent == adapter.path
        files.append(adapter.weights if own else adapter.path / PICKLE)
    stamps = []
    for file in files:
        stat = file.stat()
        stamps.append([str(file.resolve()), stat.st_ino, stat.st_size, stat.st_mtime_ns])
    return stamps


def identity(plan: MergePlan) -> str:
    """One name for inputs and arithmetic; weights count by their stamps, small files by content."""
    small = {name: sha256_bytes(file.data) for name, file in plan.small_files().items()}
    index = plan.layout.index_bytes
    return sha256_json({
        "version": ENGINE_VERSION,
        "engine": plan.engine,
        "options": plan.options.to_json(),
        "small": small,
        "index": sha256_bytes(index) if index is not None else "",
        "configs": [sha256_file(adapter.path / CONFIG) for adapter in plan.adapters],
        "weights": weight_stamps(plan),
    })  # fmt: skip


def require_unchanged(plan: MergePlan, stamps: list[list[Any]]) -> None:
    """Refuse a result made from files that changed since `stamps` were taken.

    Raises:
        EnvironmentFailure: HT155, naming the first such file.
    """
    for before, now in zip(stamps, weight_stamps(plan), strict=True):
        if before != now:
            raise EnvironmentFailure(
                "HT155",
                "a weight file changed while it was merged",
                where=str(now[0]),
                detail=("The result would be of no single input; it was removed.",),
                next="wait until nothing writes there any more, then run the same command again",
            )
