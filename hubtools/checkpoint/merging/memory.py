"""How much memory loading and merging takes, said before it is tried."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hubtools.checkpoint.adapter import Adapter
from hubtools.checkpoint.headers import TensorEntry
from hubtools.checkpoint.shards import Weights, read_weights
from hubtools.errors import EnvironmentFailure

LIBRARIES = 700_000_000
"""Resident size of a process that has imported torch, transformers and peft."""

_CGROUP = Path("/sys/fs/cgroup")


def merge_memory(base: Path, adapters: Sequence[Adapter]) -> int:
    """Bytes that PEFT needs to merge `adapters` into `base` on the CPU.

    The base is mapped, so memory grows as tensors are changed: all targeted ones, the shard that is
    mapped, the adapter in float32 twice (its parameters and what merging derives from them), and
    four float32 copies of the largest targeted tensor.
    """
    weights = read_weights(base)
    targets = [entry for _, entry in weights.tensors().values() if _targeted(entry, adapters)]
    changed = sum(entry.end - entry.begin for entry in targets)
    largest = max((entry.elements for entry in targets), default=0)
    shard = max(header.size for header in weights.headers.values())
    return LIBRARIES + changed + shard + 2 * _adapter_bytes(adapters) + 16 * largest


def load_memory(weights: Weights, adapters: Sequence[Adapter], width: int) -> int:
    """Bytes that a loaded model with its adapters takes, at `width` bytes a parameter."""
    elements = sum(entry.elements for _, entry in weights.tensors().values())
    return LIBRARIES + width * elements + _adapter_bytes(adapters)


def available_memory() -> int | None:
    """Bytes that can be taken without swapping, within this process's cgroup; None when unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    free = next(
        (int(line.split()[1]) << 10 for line in lines if line[:13] == "MemAvailable:"), None
    )
    limit = _cgroup_room()
    return free if free is None or limit is None else min(free, limit)


def require_memory(need: int, what: str, place: Path, fix: str) -> None:
    """Refuse early when `need` bytes are not available.

    Raises:
        EnvironmentFailure: HT153, with both figures.
    """
    free = available_memory()
    if free is not None and need > free:
        raise EnvironmentFailure(
            "HT153",
            f"not enough memory for {what}: {need / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free",
            where=str(place),
            detail=("It was not tried.",),
            next=fix,
        )


def _targeted(entry: TensorEntry, adapters: Sequence[Adapter]) -> bool:
    module = entry.name.removesuffix(".weight")
    for adapter in adapters:
        names = adapter.config.target_modules
        listed = isinstance(adapter.config.fields.get("target_modules"), list)
        if not listed or any(f".{module}".endswith(f".{name}") for name in names):
            return True
    return False


def _adapter_bytes(adapters: Sequence[Adapter]) -> int:
    return sum(2 * os.stat(adapter.weights).st_size for adapter in adapters)


def _cgroup_room() -> int | None:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return None
    return None if limit == "max" else int(limit) - used
