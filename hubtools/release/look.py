"""What a directory that somebody wants to release says about itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hubtools.checkpoint.adapter import (
    CONFIG,
    PICKLE,
    WEIGHTS,
    AdapterConfig,
    adapter_folder,
    read_adapter_config,
)
from hubtools.checkpoint.inspect import inspect_checkpoint
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.shards import INDEX, SINGLE
from hubtools.checkpoint.trainer import STATE, read_trainer_state
from hubtools.errors import CheckError
from hubtools.release.ingested import is_ingested


@dataclass(frozen=True, slots=True)
class Run:
    """A checkpoint, or a trainer's step that one can be made of.

    Args:
        kind: of what is published.
        kind_from: how that is known.
        step: optimizer steps; None when nothing says.
        step_from: what says so.
        base_hint: the base it names; may be a local path, may be empty.
        adapter: its configuration, if it is one.
        ingested: whether the weights have to be taken in first.
    """

    kind: Literal["full", "adapter"]
    kind_from: str
    step: int | None
    step_from: str
    base_hint: str
    adapter: AdapterConfig | None
    ingested: bool


def look_at(source: Path, *, base: Path | None, dtype: str, lora_alpha: float | None) -> Run:
    """Read names and small files of `source`.

    Args:
        source: a model, an adapter, or a trainer's step directory.
        base: local copy of the base, if there is one.
        dtype: asked for, or empty.
        lora_alpha: of a LoRA run whose trainer did not save it.

    Raises:
        CheckError: HT1xx when it is no checkpoint; as `plan_ingest`.
        UsageError: HT152 several adapters in it.
    """
    if is_ingested(source):
        return _trainers(source, base, dtype, lora_alpha)
    folder = _to_merge_only(source)
    if folder is not None:
        config, state = read_adapter_config(folder), read_trainer_state(source)
        step = state.global_step if state is not None else None
        return Run("adapter", CONFIG, step, STATE, config.base, config, False)
    info = inspect_checkpoint(source)
    step = info.trainer.global_step if info.trainer else None
    kind_from = CONFIG if info.kind == "adapter" else "config.json with weights"
    return Run(
        info.kind, kind_from, step, "trainer_state.json", info.base_hint, info.adapter, False
    )


def _to_merge_only(source: Path) -> Path | None:
    """The adapter in `source`, when it is kept in a way that a merge takes and a repo does not:
    as a pickle, or below a folder of its name.

    Raises:
        UsageError: HT152 there are several.
    """
    if any((source / name).is_file() for name in (SINGLE, INDEX, WEIGHTS)):
        return None
    try:
        folder = adapter_folder(source)
    except CheckError:
        return None
    return folder if folder != source or (folder / PICKLE).is_file() else None


def _trainers(source: Path, base: Path | None, dtype: str, lora_alpha: float | None) -> Run:
    from hubtools.checkpoint.ingesting.ingest import plan_ingest

    job = plan_ingest(source, base=base, dtype=dtype or None, lora_alpha=lora_alpha)
    folder, side = job.source.folder, job.source.side
    adapter = read_adapter_config(folder) if (folder / CONFIG).is_file() else None
    config = side / "config.json" if side is not None else None
    hint = str(read_object(config).get("_name_or_path") or "") if config is not None else ""
    return Run(
        kind=job.kind,
        kind_from=f"{job.source.kind} weights of a trainer",
        step=job.step,
        step_from="the directory's name, or trainer_state.json",
        base_hint=adapter.base if adapter is not None and adapter.base else hint,
        adapter=adapter,
        ingested=True,
    )
