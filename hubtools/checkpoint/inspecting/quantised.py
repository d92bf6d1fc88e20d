"""Is a model quantised, how, and how many parameters do its packed tensors stand for?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hubtools.checkpoint.headers import BITS, TensorEntry

_FP8 = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
_SCALES = re.compile(
    r"\.(?:absmax|nested_absmax|quant_map|nested_quant_map|quant_state\.\S+|SCB|weight_format"
    r"|qzeros|scales|g_idx|\w*_scale(?:_inv|_2)?|\w*_zero_point|weight_shape)$|_scales$"
)
_PACKED = re.compile(r"\.(?:qweight|weight_packed)$|_blocks$")
_BITS = {"gptq": 4, "awq": 4, "mxfp4": 4, "nvfp4": 4, "fp8": 8, "fbgemm_fp8": 8}


@dataclass(frozen=True, slots=True)
class Quantisation:
    """How the weights are stored.

    Args:
        method: as transformers names it, for example `gptq`, `bitsandbytes`, `fp8`.
        bits: of one weight; 0 when that is not known.
        source: the file and field, or the tensors, that say so.
    """

    method: str
    bits: int
    source: str

    def words(self) -> str:
        """For example `gptq 4-bit`."""
        return f"{self.method} {self.bits}-bit" if self.bits else self.method


def quantisation(
    config: Mapping[str, Any], entries: Iterable[TensorEntry], *, file: str = "config.json"
) -> Quantisation | None:
    """What the configuration declares, else what names and dtypes of the tensors show.

    Args:
        config: the model's configuration.
        entries: its tensors.
        file: how the configuration is named in `source`.
    """
    for where in ("quantization_config", "text_config/quantization_config"):
        declared: Any = config
        for part in where.split("/"):
            declared = declared.get(part) if isinstance(declared, Mapping) else None
        if isinstance(declared, Mapping) and declared:
            method, bits = _declared(declared)
            return Quantisation(method, bits, f"{file}:/{where}")
    for entry in entries:
        name = entry.name
        if name.endswith((".absmax", ".quant_map")) or ".quant_state.bitsandbytes__" in name:
            return Quantisation("bitsandbytes", 4, f"tensor {name}")
        if name.endswith(".SCB"):
            return Quantisation("bitsandbytes", 8, f"tensor {name}")
        if name.endswith(".qweight"):
            return Quantisation("gptq or awq", 4, f"tensor {name}")
        if entry.dtype in _FP8:
            return Quantisation("fp8", 8, f"dtype {entry.dtype} of {name}")
        if name.endswith("_blocks") and entry.dtype == "U8":
            return Quantisation("mxfp4", 4, f"tensor {name}")
    return None


def parameters(
    entries: Iterable[TensorEntry], config: Mapping[str, Any], how: Quantisation | None
) -> int:
    """Number of parameters: tied matrices once, packed weights unpacked, scales not counted.

    Args:
        entries: all tensors of the model.
        config: its configuration, which says whether the embedding is tied.
        how: its quantisation.
    """
    counted = {entry.name: entry for entry in entries}
    total = sum(_weights(entry, how) for entry in counted.values())
    if _tied(config):
        heads = [e for name, e in counted.items() if re.search(r"(?:^|\.)lm_head\.weight$", name)]
        shapes = [
            e.shape
            for name, e in counted.items()
            if re.search(r"(?:embed_tokens|wte|word_embeddings|embed_in)\.weight$", name)
        ]
        total -= sum(_weights(head, how) for head in heads if head.shape in shapes)
    return total


def _weights(entry: TensorEntry, how: Quantisation | None) -> int:
    if how is None:
        return entry.elements
    if _SCALES.search(entry.name):
        return 0
    packed = _PACKED.search(entry.name) or (
        how.method == "bitsandbytes" and how.bits == 4 and entry.dtype == "U8"
    )
    if packed and how.bits:
        return entry.elements * BITS[entry.dtype] // how.bits
    return entry.elements


def _declared(fields: Mapping[str, Any]) -> tuple[str, int]:
    method = str(fields.get("quant_method") or fields.get("quant_algo") or "unnamed").lower()
    bits = fields.get("bits") or fields.get("w_bit") or fields.get("nbits")
    if not bits and method in ("bitsandbytes", "unnamed"):
        bits = 4 if fields.get("load_in_4bit") else 8 if fields.get("load_in_8bit") else 0
        method = "bitsandbytes" if bits else method
    groups = fields.get("config_groups")
    if not bits and isinstance(groups, Mapping):
        first = next(iter(groups.values()), None)
        weights = first.get("weights") if isinstance(first, Mapping) else None
        bits = weights.get("num_bits") if isinstance(weights, Mapping) else 0
    if isinstance(bits, int) and 0 < bits <= 16:
        return method, bits
    return method, _BITS.get(method, 0)


def _tied(config: Mapping[str, Any]) -> bool:
    text = config.get("text_config")
    inner = text.get("tie_word_embeddings") if isinstance(text, Mapping) else None
    return bool(config.get("tie_word_embeddings", inner))
