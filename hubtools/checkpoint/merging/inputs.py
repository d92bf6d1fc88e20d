"""What a merge is made from, and the one name of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hubtools.checkpoint.adapter import CONFIG, PICKLE, Adapter
from hubtools.checkpoint.carry import small_files
from hubtools.checkpoint.merging.options import MergeOptions
from hubtools.checkpoint.shards import INDEX, Weights
from hubtools.checkpoint.stamps import stamps_of
from hubtools.digests import sha256_bytes, sha256_file, sha256_json

ENGINE_VERSION = 2


def weight_files(adapters: Sequence[Adapter], weights: Weights) -> list[Path]:
    """Every weight file that is read, as the user has it; `weights` are the base's."""
    files = [header.path for header in weights.headers.values()]
    for adapter in adapters:
        own = adapter.weights.parent == adapter.path
        files.append(adapter.weights if own else adapter.path / PICKLE)
    return files


def peft_versions() -> list[str]:
    """The libraries whose word counts when PEFT merges; one that is missing is told by PEFT."""
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for name in ("peft", "torch", "transformers"):
        with suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return found


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
    return sha256_json({
        "version": ENGINE_VERSION,
        "engine": list(engine),
        "options": options.to_json(),
        "small": {name: sha256_bytes(data) for name, data in small.items()},
        "index": sha256_file(base / INDEX) if weights.index is not None else "",
        "configs": [sha256_file(adapter.path / CONFIG) for adapter in adapters],
        "weights": [
            list(stamp)
            for stamp in stamps_of(file.resolve() for file in weight_files(adapters, weights))
        ],
    })  # fmt: skip
