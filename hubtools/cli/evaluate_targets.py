"""Whom `hubtools evaluate run` measures: folders and servers, each by a name of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hubtools.evaluation.spec import Engine, Target

LONGEST = 200
"""Bytes of a name that still is one of a folder."""


def targets_of(models: Sequence[Path], adapters: Sequence[Path], engine: Engine) -> list[Target]:
    """The checkpoints, each once, with the digests of their weights.

    Raises:
        CheckError: HT409 no safetensors, HT485 an adapter where a model belongs, or the reverse.
        click.UsageError: a name that cannot be that of a folder.
    """
    from hubtools.evaluation.identity import model_weights
    from hubtools.evaluation.spec import Target

    if engine.kind == "endpoint":
        return [Target(_named(engine.served_name.strip("/").replace("/", "--")))]
    pairs: list[tuple[Path, Path | None]] = [(models[0], adapter) for adapter in adapters]
    pairs = pairs or [(model, None) for model in models]
    once: dict[Path, tuple[Path, Path | None]] = {}
    for model, adapter in pairs:
        once.setdefault((adapter or model).resolve(), (model, adapter))
    for model, adapter in once.values():
        _require_kind(model, adapter)
    return [
        Target(_named(name), model_weights(*once[folder]), *once[folder])
        for name, folder in zip(names_of(list(once)), once, strict=True)
    ]


def names_of(folders: Sequence[Path]) -> list[str]:
    """For each folder the fewest last parts of its path that no other folder ends in."""

    def name(folder: Path) -> str:
        for count in range(1, len(folder.parts)):
            end = folder.parts[-count:]
            if sum(other.parts[-count:] == end for other in folders) == 1:
                return "--".join(end)
        return "--".join(folder.parts[1:])

    names = [name(folder) for folder in folders]
    if len(set(names)) < len(names):
        raise click.UsageError("Two checkpoints have the same name: evaluate one of them by itself")
    return names


def _require_kind(model: Path, adapter: Path | None) -> None:
    from hubtools.errors import CheckError

    if (model / "adapter_config.json").is_file() and not (model / "config.json").is_file():
        raise CheckError(
            "HT485",
            "this is a PEFT adapter, not a whole checkpoint",
            where=str(model),
            detail=("Nothing was asked.",),
            next=f"hubtools evaluate BASE --adapter {model}",
        )
    if adapter is not None and not (adapter / "adapter_config.json").is_file():
        raise CheckError(
            "HT485",
            "this is no PEFT adapter: it has no adapter_config.json",
            where=str(adapter),
            detail=("Nothing was asked.",),
            next=f"hubtools evaluate {adapter}, if it is a whole checkpoint",
        )


def _named(name: str) -> str:
    """A name, once it is known to be one plain part of a path.

    Raises:
        click.UsageError: it is not.
    """
    plain = name.isprintable() and len(name.encode(errors="replace")) <= LONGEST
    if not plain or name in ("", ".", "..") or {"/", "\\"} & set(name):
        raise click.UsageError(
            f"{name[:40]!r} cannot be the name of a folder of runs: give the checkpoint another one"
        )
    return name
