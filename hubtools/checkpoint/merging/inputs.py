"""What a merge is made from, and the one name of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hubtools.checkpoint.adapter import CONFIG, PICKLE, Adapter
from hubtools.checkpoint.carry import SmallFile, carried_files, small_files
from hubtools.checkpoint.merging.options import MergeOptions
from hubtools.checkpoint.shards import INDEX, Weights
from hubtools.checkpoint.stamps import Stamp, stamps_of
from hubtools.digests import sha256_bytes, sha256_file, sha256_json

ENGINE_VERSION = 2


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a merge reads, as it was before anything was planned.

    Args:
        small: what lies beside the weights, as `carry.small_files`.
        stamps: of every file that is read: whether they stayed as they were is asked at the end.
    """

    small: Mapping[str, SmallFile]
    stamps: tuple[Stamp, ...]


def read_inputs(adapters: Sequence[Adapter], base: Path) -> Inputs:
    """Read the small files, and stamp all files.

    Raises:
        CheckError: as `carry.small_files`.
    """
    # An adapter that has a name lies in a folder of that name, below its tokenizer.
    folders = [folder for a in adapters for folder in dict.fromkeys((a.named, a.path))]
    configs = [base / "config.json", base / INDEX, *(a.path / CONFIG for a in adapters)]
    files = [*carried_files(folders, base).values(), *base.glob("*.safetensors"), *configs]
    files += map(_weights, adapters)
    stamps = stamps_of(file for file in dict.fromkeys(files) if file.exists())
    return Inputs(small_files(folders, base), tuple(stamps))


def _weights(adapter: Adapter) -> Path:
    """The weight file of an adapter, as the user has it."""
    own = adapter.weights.parent == adapter.path
    return adapter.weights if own else adapter.path / PICKLE


def peft_versions() -> list[str]:
    """The libraries whose word counts when PEFT merges; one that is missing is told by PEFT."""
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for name in ("peft", "torch", "transformers"):
        with suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return found


def identity(
    inputs: Inputs,
    adapters: Sequence[Adapter],
    weights: Weights,
    options: MergeOptions,
    engine: Sequence[str],
) -> str:
    """One name for inputs and arithmetic; weights count by their stamps, small files by content."""
    base = [header.path for header in weights.headers.values()]
    files = [*base, *map(_weights, adapters)]
    return sha256_json({
        "version": ENGINE_VERSION,
        "engine": list(engine),
        "options": options.to_json(),
        "small": {name: sha256_bytes(file.data) for name, file in inputs.small.items()},
        "index": sha256_file(base[0].with_name(INDEX)) if weights.index is not None else "",
        "configs": [sha256_file(adapter.path / CONFIG) for adapter in adapters],
        "weights": [list(stamp) for stamp in stamps_of(file.resolve() for file in files)],
    })  # fmt: skip
