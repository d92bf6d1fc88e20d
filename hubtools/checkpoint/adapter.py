"""An adapter directory: adapter_config.json as PEFT reads it, and the file with its tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hubtools.checkpoint.jsonfile import finite, read_object
from hubtools.checkpoint.patterns import fits, require_pattern
from hubtools.digests import sha256_json
from hubtools.errors import CheckError, UsageError

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PICKLE = "adapter_model.bin"


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """An adapter_config.json.

    Args:
        path: the file.
        peft_type: for example `LORA`.
        rank, alpha: global values; 0 when the type has none.
        base, revision: the base model the trainer wrote down; `base` may be a local path.
        fields: the whole file.
    """

    path: Path
    peft_type: str
    rank: int
    alpha: float
    rslora: bool
    target_modules: tuple[str, ...]
    base: str
    revision: str
    fields: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def rounding(self) -> Literal["once", "twice"]:
        """How PEFT adds scaling·B·A: MiCA's layers round the product before they add it."""
        return "twice" if self.fields.get("init_lora_weights") == "mica" else "once"

    def rank_of(self, module: str) -> int:
        """Rank of the module at this path inside the model, as PEFT looks it up."""
        return int(self._by_pattern("rank_pattern", module, self.rank))

    def scaling_of(self, module: str) -> float:
        """Factor of B·A for the module: alpha/r, with rsLoRA alpha/√r."""
        alpha = self._by_pattern("alpha_pattern", module, self.alpha)
        rank = self.rank_of(module)
        return alpha / math.sqrt(rank) if self.rslora else alpha / rank

    def _by_pattern(self, field: str, module: str, otherwise: float) -> float:
        for pattern, value in (self.fields.get(field) or {}).items():
            if fits(pattern, module, self.path, below=True):
                return float(value)
        return otherwise


def read_adapter_config(path: Path) -> AdapterConfig:
    """Read `path/adapter_config.json`, whatever its type.

    Raises:
        CheckError: HT106 not readable, HT110 a field of the wrong kind.
    """
    file = path / CONFIG
    fields = read_object(file)
    targets = fields.get("target_modules")
    peft_type = str(fields.get("peft_type") or "").upper()
    rank, alpha = finite(fields.get("r", 0)), finite(fields.get("lora_alpha", 0))
    patterns = [fields.get(name) or {} for name in ("rank_pattern", "alpha_pattern")]
    numbers = rank is not None and rank == int(rank) and rank >= 0 and alpha is not None
    # Other types give these names other meanings: AdaLoRA's patterns are lists of flags.
    if peft_type == "LORA" and not (numbers and all(map(_numbers_by_pattern, patterns))):
        raise unsupported(file, "r, lora_alpha or a pattern of them is not a number")
    if peft_type == "LORA":
        for pattern in (pattern for by_pattern in patterns for pattern in by_pattern):
            require_pattern(pattern, file, below=True)
    return AdapterConfig(
        path=file,
        peft_type=peft_type,
        rank=int(rank or 0),
        alpha=alpha or 0.0,
        rslora=bool(fields.get("use_rslora")),
        target_modules=tuple(map(str, targets)) if isinstance(targets, list) else (str(targets),),
        base=str(fields.get("base_model_name_or_path") or ""),
        revision=str(fields.get("revision") or ""),
        fields=fields,
    )


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter whose tensors can be read.

    Args:
        path: the directory with adapter_config.json.
        weights: its safetensors file; elsewhere when it was converted from a pickle.
        named: the directory that was asked for: `path`, or its parent.
    """

    path: Path
    config: AdapterConfig
    weights: Path
    named: Path


def open_adapter(path: Path, scratch: Path) -> Adapter:
    """The adapter in `path`, or in its only sub-directory that holds one.

    Args:
        path: as named by the user. PEFT saves an adapter that has a name in a directory of that
            name.
        scratch: directory, made when needed, for the safetensors copy of an `adapter_model.bin`;
            the copy is made once and used again.

    Raises:
        UsageError: HT152 several adapters in sub-directories.
        CheckError: HT112 no adapter, HT101 no weights, HT151 a pickle that is not plain tensors;
            as `read_adapter_config`.
    """
    folder = adapter_folder(path)
    config = read_adapter_config(folder)
    weights = folder / WEIGHTS
    if not weights.is_file():
        weights = _converted(folder, scratch)
    return Adapter(folder, config, weights, path)


def unsupported(file: Path, what: str, fix: str = "") -> CheckError:
    """HT110: this adapter cannot be merged here; with the way out, when there is one."""
    return CheckError(
        "HT110",
        f"cannot merge this adapter: {what}",
        where=str(file),
        detail=("Nothing was written.",),
        next=fix or 'publish it unmerged: kind = "adapter" in family.toml',
    )


def adapter_folder(path: Path) -> Path:
    """`path`, or its only sub-directory that holds an adapter.

    Raises:
        UsageError: HT152 several, or other checkpoints beside it.
        CheckError: HT112 none.
    """
    if (path / CONFIG).is_file():
        return path
    inside = sorted(file.parent for file in path.glob(f"*/{CONFIG}")) if path.is_dir() else []
    if len(inside) > 1:
        names = ", ".join(folder.name for folder in inside)
        raise UsageError(
            "HT152",
            f"{path.name} holds {len(inside)} adapters: {names}",
            where=str(path),
            detail=("Nothing was written.",),
            next=f"name the one that is meant, for example {inside[-1]}",
        )
    if not inside:
        raise CheckError(
            "HT112",
            f"not an adapter: no {CONFIG}",
            where=str(path),
            detail=("Nothing was written.",),
            next=f"ls {path}",
        )
    others = {file.parent for file in path.glob("*/config.json")} - set(inside)
    others |= {path} if (path / "config.json").is_file() else set()
    if others:
        names = ", ".join(sorted("a model of its own" if o == path else o.name for o in others))
        raise UsageError(
            "HT152",
            f"{path.name} holds the adapter {inside[0].name}, and also {names}",
            where=str(path),
            detail=("Nothing was written.",),
            next=f"name the one that is meant, for example {inside[0]}",
        )
    return inside[0]


def _converted(folder: Path, scratch: Path) -> Path:
    from hubtools.children import passing_log, run_child

    pickle = folder / PICKLE
    if not pickle.is_file():
        raise CheckError(
            "HT101",
            f"an adapter without weights: {WEIGHTS} is missing",
            where=str(folder),
            detail=("Nothing was written.",),
            next=f"ls {folder}  # then name the directory that holds {WEIGHTS}",
        )
    stat = pickle.stat()
    key = sha256_json([str(pickle.resolve()), stat.st_ino, stat.st_size, stat.st_mtime_ns])
    target = scratch / f"adapter-{key[:16]}.safetensors"
    if not target.is_file():
        with passing_log() as log:
            run_child(
                "hubtools.checkpoint.pickled_child",
                {"pickle": str(pickle.absolute()), "target": str(target.absolute())},
                log=log,
                what=f"converting {pickle}",
            )
    return target


def _numbers_by_pattern(patterns: Any) -> bool:
    return isinstance(patterns, Mapping) and all((finite(v) or 0) > 0 for v in patterns.values())
