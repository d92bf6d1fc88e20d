"""Tiny models whose files and memory differ: experts, fused matrices, renamed prefixes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hubtools.checkpoint.naming.names import NameMap

_TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 131,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_MULTI_HEAD = {k: v for k, v in _TEXT.items() if k not in ("num_key_value_heads", "head_dim")}
_EXPERTS = {"moe_intermediate_size": 40, "num_experts": 4, "num_experts_per_tok": 2}
_SHARED = {**_EXPERTS, "shared_expert_intermediate_size": 24}
_LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
_VISION = {"hidden_size": 32, "intermediate_size": 53, "patch_size": 4}
_QWEN_VISION = {
    **_VISION,
    "depth": 2,
    "num_heads": 2,
    "out_hidden_size": 64,
    "deepstack_visual_indexes": [0],
    "num_position_embeddings": 16,
}
_MROPE = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}

# model_type → class, fields of its configuration.
LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt_neox": ("GPTNeoXForCausalLM", _MULTI_HEAD),
    "phi3": ("Phi3ForCausalLM", _TEXT),
    "qwen2_moe": ("Qwen2MoeForCausalLM", {**_TEXT, **_SHARED}),
    "phimoe": ("PhimoeForCausalLM", {**_TEXT, **_LOCAL}),
    "granitemoe": ("GraniteMoeForCausalLM", {**_TEXT, **_LOCAL}),
    "gpt_oss": (
        "GptOssForCausalLM",
        {
            **_TEXT,
            **_LOCAL,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
    ),
    "llama4_text": ("Llama4ForCausalLM", {**_TEXT, **_LOCAL, "intermediate_size_mlp": 48}),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM",
        {
            **_MULTI_HEAD,
            "num_key_value_heads": 4,
            "moe_intermediate_size": 40,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "q_lora_rank": 8,
            "kv_lora_rank": 8,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 16,
        },
    ),
    "sarvam_moe": (
        "Glm4MoeForCausalLM",
        {
            **_TEXT,
            "moe_intermediate_size": 40,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "first_k_dense_replace": 1,
        },
    ),
    "lara_mini": (
        "LaraMiniForCausalLM",
        {
            **_TEXT,
            **_SHARED,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "layer_types": ["linear_attention", "full_attention"],
        },
    ),
    "llava": (
        "LlavaForConditionalGeneration",
        {
            "text_config": {"model_type": "llama", **_TEXT},
            "vision_config": {
                "model_type": "clip_vision_model",
                **_VISION,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 16,
                "projection_dim": 16,
            },
            "image_token_id": 120,
        },
    ),
    "ernie4_5_vl_moe": (
        "Ernie4_5_VLMoeForConditionalGeneration",
        {
            "text_config": {
                **_TEXT,
                "moe_intermediate_size": [40, 24],
                "moe_num_experts": 4,
                "moe_k": 2,
                "rope_parameters": {**_MROPE, "mrope_section": [3, 3, 2]},
            },
            "vision_config": {
                "hidden_size": 32,
                "intermediate_size": 53,
                "patch_size": 4,
                "depth": 2,
                "num_heads": 2,
            },
        },
    ),
    "qwen3_vl": (
        "Qwen3VLForConditionalGeneration",
        {
            "text_config": {**_TEXT, "rope_parameters": _MROPE},
            "vision_config": _QWEN_VISION,
        },
    ),
    "qwen3_vl_moe": (
        "Qwen3VLMoeForConditionalGeneration",
        {
            "text_config": {**_TEXT, **_EXPERTS, "rope_parameters": _MROPE},
            "vision_config": _QWEN_VISION,
        },
    ),
}


def save_layout(path: Path, kind: str, dtype: str = "float32", **fields: Any) -> Path:
    """A randomly initialised model of one of LAYOUTS, every value of it random."""
    import torch
    import transformers

    torch.manual_seed(19)
    name, values = LAYOUTS[kind]
    config = transformers.AutoConfig.for_model(kind, **{**values, **fields})
    model = getattr(transformers, name)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    model.to(getattr(torch, dtype)).save_pretrained(path)
    return path


def load_layout(path: Path) -> Any:
    """The model in a directory, as its own class."""
    import json

    import transformers

    (name,) = json.loads((path / "config.json").read_bytes())["architectures"]
    return getattr(transformers, name).from_pretrained(path)


def put_together(names: NameMap, disk: dict[str, Any]) -> dict[str, Any]:
    """In-memory parameters made of stored tensors as a NameMap says; each element set once."""
    import torch

    whole = {}
    for name, parts in names.parameters.items():
        shape = names.shapes[name]
        pages = shape if len(shape) == 3 else (1, *(shape[:1] or (1,)), -1)
        value = torch.full(shape, float("nan")).reshape(pages)
        for part in parts:
            stored = disk[part.disk].float()
            if stored.dim() != 3 or len(shape) != 3:
                stored = stored.reshape(1, stored.shape[0] if stored.dim() else 1, -1)
            lines = slice(*part.disk_rows) if part.disk_rows else slice(None)
            stored = (stored.transpose(1, 2) if part.transposed else stored)[:, lines]
            place = value if part.page is None else value[part.page : part.page + 1]
            place = place[:, slice(*part.rows)]
            assert place.shape == stored.shape, (name, part)
            assert place.isnan().all(), (name, part)
            place.copy_(stored)
        assert not value.isnan().any(), name
        whole[name] = value.reshape(shape)
    return whole
