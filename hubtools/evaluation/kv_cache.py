"""How much memory the keys and values of a conversation take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "auto": 2}


def bytes_per_token(config: Mapping[str, Any], dtype: str) -> int:
    """Bytes of one token of one sequence in all layers; 0 when config.json does not tell.

    Args:
        config: config.json; of a model with several parts, the text part counts.
        dtype: in which keys and values are kept.
    """
    text = config.get("text_config")
    part = text if isinstance(text, dict) else config
    layers, heads = _int(part, "num_hidden_layers"), _int(part, "num_attention_heads")
    kv_heads = _int(part, "num_key_value_heads") or heads
    width = _int(part, "head_dim") or (_int(part, "hidden_size") // heads if heads else 0)
    return 2 * layers * kv_heads * width * _BYTES.get(dtype, 4)


def _int(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    return value if isinstance(value, int) and value > 0 else 0
