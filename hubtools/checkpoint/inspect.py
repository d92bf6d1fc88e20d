"""What is this directory? Headers and small JSON files only; no tensor is read."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hubtools.checkpoint import adapter as adapters
from hubtools.checkpoint.adapter import AdapterConfig, read_adapter_config
from hubtools.checkpoint.headers import TensorEntry, read_header
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.shards import INDEX, SINGLE, pickled, read_weights
from hubtools.checkpoint.trainer import TrainerState, read_trainer_state
from hubtools.errors import CheckError, Finding

DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}
_TRAINER_SHARDS = ("model_world_size_*_rank_*.pt", "*.distcp", "mp_rank_*", "pytorch_model_fsdp_*")


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A model or adapter directory.

    Args:
        weights: names of the weight files.
        dtype: of most parameters, in torch's words (`bfloat16`).
        parameters: number of elements in all tensors.
        bytes: size of the weight files.
        architecture, model_type: from config.json; empty for an adapter.
        base_hint: base model the directory names; may be a local path, may be empty.
    """

    path: Path
    kind: Literal["full", "adapter"]
    weights: tuple[str, ...]
    dtype: str
    parameters: int
    bytes: int
    architecture: str
    model_type: str
    base_hint: str
    adapter: AdapterConfig | None
    trainer: TrainerState | None
    findings: tuple[Finding, ...]


def inspect_checkpoint(path: Path) -> CheckpointInfo:
    """Say what `path` holds.

    Raises:
        CheckError: HT101 neither model nor adapter, HT102 pickles only, HT103 unmerged trainer
            shards, HT104/HT105/HT106 files that are not whole.
    """
    if (path / adapters.CONFIG).is_file():
        return _adapter(path)
    has_weights = (path / SINGLE).is_file() or (path / INDEX).is_file()
    if (path / "config.json").is_file() and (has_weights or any(path.glob("pytorch_model*.bin"))):
        return _full(path)
    raise _neither(path)


def _full(path: Path) -> CheckpointInfo:
    config = read_object(path / "config.json")
    weights = read_weights(path)
    entries = [entry for header in weights.headers.values() for entry in header.tensors]
    named = config.get("architectures")
    return CheckpointInfo(
        path=path,
        kind="full",
        weights=tuple(weights.headers),
        dtype=_main_dtype(entries),
        parameters=sum(entry.elements for entry in entries),
        bytes=weights.bytes,
        architecture=str(named[0]) if isinstance(named, list) and named else "",
        model_type=str(config.get("model_type") or ""),
        base_hint=str(config.get("_name_or_path") or ""),
        adapter=None,
        trainer=read_trainer_state(path),
        findings=tuple(_pickle_findings(path)),
    )


def _adapter(path: Path) -> CheckpointInfo:
    config = read_adapter_config(path)
    file = path / adapters.WEIGHTS
    if not file.is_file():
        if (path / "adapter_model.bin").is_file():
            raise pickled(path / "adapter_model.bin", "adapter")
        raise CheckError(
            "HT101",
            f"an adapter without weights: {adapters.WEIGHTS} is missing",
            where=str(path),
            detail=("Nothing was written.",),
            next=f"ls {path}  # then name the directory that holds {adapters.WEIGHTS}",
        )
    header = read_header(file)
    return CheckpointInfo(
        path=path,
        kind="adapter",
        weights=(file.name,),
        dtype=_main_dtype(header.tensors),
        parameters=sum(entry.elements for entry in header.tensors),
        bytes=header.size,
        architecture="",
        model_type="",
        base_hint=config.base,
        adapter=config,
        trainer=read_trainer_state(path),
        findings=(*_base_findings(config), *_pickle_findings(path)),
    )


def _main_dtype(entries: Any) -> str:
    count: Counter[str] = Counter()
    for entry in entries:
        assert isinstance(entry, TensorEntry)
        count[entry.dtype] += entry.elements
    name = count.most_common(1)[0][0] if count else ""
    return DTYPES.get(name, name.lower())


def _base_findings(config: AdapterConfig) -> list[Finding]:
    place = str(config.path)
    if not config.base:
        message = "adapter_config.json names no base model"
    elif config.base.startswith((".", "/", "~")) or config.base.count("/") > 1:
        message = f"adapter_config.json names a local path as its base model: {config.base}"
    else:
        return []
    fix = 'name the base: base = { repo = "owner/name", revision = "<40 hex>" } in family.toml'
    return [Finding("HT107", "warning", message, where=place, next=fix)]


def _pickle_findings(path: Path) -> list[Finding]:
    names = sorted(file.name for file in path.glob("*.bin") if file.name != "training_args.bin")
    return [
        Finding("HT108", "info", f"{name} is a pickle: not read, not published", where=str(path))
        for name in names
    ]


def _neither(path: Path) -> CheckError:
    shards = [file for pattern in _TRAINER_SHARDS for file in path.glob(f"**/{pattern}")]
    if path.is_dir() and shards:
        return CheckError(
            "HT103",
            "a trainer's own shards, not a model yet",
            where=str(shards[0]),
            detail=("Sharded trainer states cannot be published; nothing was written.",),
            next=f"hubtools ingest {shlex.quote(str(path))} -o OUT, then name OUT",
        )
    inside = sorted(
        file.parent.name
        for name in (adapters.CONFIG, "config.json")
        for file in path.glob(f"*/{name}")
    )
    what = "not a directory" if not path.is_dir() else "neither a model nor an adapter"
    return CheckError(
        "HT101",
        f"{what}: no config.json with weights, no {adapters.CONFIG}",
        where=str(path),
        detail=(f"It contains checkpoints: {', '.join(inside)}",) if inside else (),
        next=f"name one of them, for example {path / inside[-1]}" if inside else f"ls {path}",
    )
