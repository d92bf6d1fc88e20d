"""The plan of a merge: every adapter tensor has exactly one place, known before a byte is written.

Reads headers and small JSON files only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hubtools.checkpoint.adapter import (
    WEIGHTS,
    AdapterConfig,
    read_adapter_config,
    require_plain_lora,
    unsupported,
)
from hubtools.checkpoint.headers import TensorEntry, read_header
from hubtools.checkpoint.inspect import CheckpointInfo, inspect_checkpoint
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.merging.recipe import (
    Factor,
    Layout,
    LowRank,
    Output,
    OutputFile,
    Stored,
)
from hubtools.checkpoint.shards import INDEX, Weights, read_weights
from hubtools.errors import CheckError

_FACTOR = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])(\.default)?\.weight")
_FLOATS = ("F32", "BF16", "F16")
_CONV1D_TYPES = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer", "clvp", "gpt_bigcode")


@dataclass(frozen=True, slots=True)
class Slot:
    """One base tensor W [out, in] and the factors that change it: W + scaling·(B·A).

    Args:
        file: weight file that holds W.
        a, b: lora_A [rank, in] and lora_B [out, rank] in the adapter file.
    """

    module: str
    file: str
    target: TensorEntry
    a: TensorEntry
    b: TensorEntry
    scaling: float

    @property
    def rank(self) -> int:
        """Inner dimension of B·A."""
        return self.a.shape[0]


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What a merge will do.

    Args:
        slots: by file and offset.
        layout: every output tensor with what is done to it.
        engine: who multiplies B·A; see `_engine`.
    """

    adapter: Path
    base: Path
    config: AdapterConfig
    weights: Weights
    slots: tuple[Slot, ...]
    layout: Layout
    engine: Literal["numpy", "torch"]

    def to_json(self) -> dict[str, Any]:
        """The `plan` object of `hubtools merge --dry-run --json`."""
        changed = sum(slot.target.end - slot.target.begin for slot in self.slots)
        return {
            "adapter_tensors": 2 * len(self.slots),
            "changed_tensors": len(self.slots),
            "tensors": sum(len(header.tensors) for header in self.weights.headers.values()),
            "changed_bytes": changed,
            "bytes": self.weights.bytes,
            "files": sorted(self.weights.headers),
            "ranks": sorted({slot.rank for slot in self.slots}),
            "scalings": sorted({slot.scaling for slot in self.slots}),
            "engine": self.engine,
        }


def plan_merge(adapter: Path, base: Path) -> MergePlan:
    """Match every tensor of `adapter` to exactly one tensor of `base`.

    Raises:
        CheckError: HT110/HT111 another kind of adapter, HT112 a tensor without a place,
            HT113 another shape (wrong base), HT114 half an adapter, HT115 a base that plain
            arithmetic cannot change, HT116 an adapter that changes nothing; HT10x unreadable files.
    """
    if inspect_checkpoint(adapter).kind != "adapter":
        raise _refuse("HT112", "not an adapter: nothing to merge", adapter, (), f"ls {adapter}")
    config = read_adapter_config(adapter)
    require_plain_lora(config)
    info = inspect_checkpoint(base)
    if info.kind == "adapter":
        why = "the base is itself an adapter"
        raise _refuse("HT115", why, base, (), "name the model that adapter was trained on")
    weights = read_weights(base)
    base_config = read_object(base / "config.json")
    factors = _factors(adapter / WEIGHTS)
    _require_plain_base(base_config, config, factors, base)
    places = weights.tensors()
    homeless = [module for module in factors if f"{module}.weight" not in places]
    if homeless:
        raise _homeless(config, info, homeless, len(factors))
    slots = [
        _slot(module, pair, *places[f"{module}.weight"], config, base)
        for module, pair in factors.items()
    ]
    slots.sort(key=lambda slot: (slot.file, slot.target.begin))
    layout = _layout(adapter / WEIGHTS, base, weights, slots)
    return MergePlan(adapter, base, config, weights, tuple(slots), layout, _engine(slots))


def _layout(adapter: Path, base: Path, weights: Weights, slots: list[Slot]) -> Layout:
    found = {(slot.file, slot.target.name): slot for slot in slots}

    def output(file: str, path: Path, entry: TensorEntry) -> Output:
        slot = found.get((file, entry.name))
        source = Stored(path, entry)
        if slot is None:
            return Output(entry.name, entry.dtype, entry.shape, source)
        a, b = Factor(Stored(adapter, slot.a)), Factor(Stored(adapter, slot.b))
        kind = slot.module.rsplit(".", 1)[-1]
        ops = (LowRank(a, b, slot.scaling),)
        return Output(entry.name, entry.dtype, entry.shape, source, ops, kind)

    files = tuple(
        OutputFile(name, tuple(output(name, header.path, e) for e in header.tensors), header)
        for name, header in weights.headers.items()
    )
    index = weights.index
    if index is None:
        return Layout(files)
    total = weights.tensor_bytes()
    metadata = index.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    if known.get("total_size") == total:
        return Layout(files, index, (base / INDEX).read_bytes())
    return Layout(files, {**index, "metadata": {**known, "total_size": total}})


def _factors(file: Path) -> dict[str, dict[str, TensorEntry]]:
    factors: dict[str, dict[str, TensorEntry]] = {}
    for entry in read_header(file).tensors:
        match = _FACTOR.fullmatch(entry.name)
        if match is None:
            raise _refuse(
                "HT111",
                f"adapter tensor {entry.name} is not a factor of plain LoRA ({_kind(entry.name)})",
                file,
                (),
                unsupported(file, "").next,
            )
        pair = factors.setdefault(match["module"], {})
        if match["side"] in pair:
            raise _half(file, f"{match['module']} has two lora_{match['side']}")
        if len(entry.shape) != 2 or not entry.elements or entry.dtype not in _FLOATS:
            raise _half(file, f"{entry.name} is {entry.dtype} {list(entry.shape)}")
        pair[match["side"]] = entry
    for module, pair in factors.items():
        if len(pair) != 2:
            raise _half(file, f"{module} has lora_{next(iter(pair))} alone")
    if not factors:
        raise _half(file, "it holds no tensors")
    return factors


def _kind(name: str) -> str:
    kinds = {
        "lora_magnitude_vector": "DoRA",
        "lora_B.bias": "LoRA with a bias of its own",
        "lora_embedding_": "LoRA on an embedding",
        "token_adapter": "trained token rows",
        "lora_diag": "KaSA",
    }
    found = [kind for part, kind in kinds.items() if part in name]
    return found[0] if found else "a whole saved tensor or another adapter type"


def _require_plain_base(
    base_config: Mapping[str, Any],
    config: AdapterConfig,
    factors: Mapping[str, Any],
    base: Path,
) -> None:
    file = base / "config.json"
    if base_config.get("quantization_config"):
        fix = "name the 16-bit model it was quantised from: --base DIR"
        raise _refuse("HT115", "the base is quantised", file, (), fix)
    if base_config.get("model_type") in _CONV1D_TYPES:
        raise unsupported(config.path, f"transposed layers of {base_config['model_type']}")
    for module in factors:
        last = module.rsplit(".", 1)[-1]
        if ".experts." in f".{module}.":
            raise unsupported(config.path, f"LoRA on expert layers ({module})")
        if base_config.get("tie_word_embeddings") and last in ("lm_head", "embed_out"):
            raise unsupported(config.path, f"{module} shares its weights with the embedding")


def _slot(
    module: str,
    pair: Mapping[str, TensorEntry],
    file: str,
    target: TensorEntry,
    config: AdapterConfig,
    base: Path,
) -> Slot:
    a, b = pair["A"], pair["B"]
    where, place = str(base / file), f"{module}.weight"
    if target.dtype not in _FLOATS:
        why = f"{place} is stored as {target.dtype}"
        fix = "name a base in float32, bfloat16 or float16"
        raise _refuse("HT115", why, Path(where), (), fix)
    rank = config.rank_of(module)
    if a.shape[0] != rank or b.shape[1] != rank:
        what = f"{module}: rank {rank} by adapter_config.json, lora_A {list(a.shape)}"
        raise _half(config.path, f"{what}, lora_B {list(b.shape)}")
    if (b.shape[0], a.shape[1]) != target.shape:
        raise _refuse(
            "HT113",
            f"wrong base: {place} is {list(target.shape)}, the adapter was trained on "
            f"{[b.shape[0], a.shape[1]]}",
            Path(where),
            (_trained_on(config), "Nothing was written."),
            "name the base the adapter was trained on: --base DIR",
        )
    scaling = config.scaling_of(module)
    if scaling == 0:
        why = f"{module}: lora_alpha is 0, so the merge would change nothing"
        raise _refuse("HT116", why, config.path, (), "write the alpha used in training there")
    return Slot(module, file, target, a, b, scaling)


def _engine(slots: list[Slot]) -> Literal["numpy", "torch"]:
    # OpenBLAS and MKL add up B·A in the same order, hence round alike, only here (measured:
    # elsewhere the inner loop is split, or slivers and last columns take another kernel).
    def agree(slot: Slot) -> bool:
        rows, columns = slot.target.shape
        return rows >= 16 and (slot.rank < 32 or (slot.rank <= 128 and columns % 64 == 0))

    return "numpy" if all(map(agree, slots)) else "torch"


def _homeless(
    config: AdapterConfig, base: CheckpointInfo, modules: list[str], total: int
) -> CheckError:
    kind = base.architecture or base.model_type
    shown = [f"{module}.weight" for module in modules[:5]]
    more = f" and {len(modules) - 5} more" if len(modules) > 5 else ""
    return _refuse(
        "HT112",
        f"{len(modules)} of {total} adapter modules have no place in this base ({kind})",
        config.path.with_name(WEIGHTS),
        (f"not in the base: {', '.join(shown)}{more}", _trained_on(config)),
        f"name the base the adapter was trained on: --base DIR (not {base.path})",
    )


def _trained_on(config: AdapterConfig) -> str:
    return f"adapter_config.json names as base: {config.base or '(nothing)'}"


def _half(file: Path, what: str) -> CheckError:
    fix = "save the adapter again from the training run (gather sharded parameters first)"
    return _refuse("HT114", "the adapter file is not complete", file, (what,), fix)


def _refuse(id: str, message: str, where: Path, detail: tuple[str, ...], fix: str) -> CheckError:
    nothing = "Nothing was written."
    lines = detail if nothing in detail else (*detail, nothing)
    return CheckError(id, message, where=str(where), detail=lines, next=fix)
