"""Configurations of further architectures, tiny: renamed, fused, split and encoder–decoder ones."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from tiny_models import save_tokenizer
from zoo_adapters import trained

_ROPE = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
_TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 104,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 131,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_MOE = {**_TEXT, "moe_intermediate_size": 40, "num_experts": 4, "num_experts_per_tok": 2}
_VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 4,
}
_TOWER: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_heads": 2,
    "out_hidden_size": 64,
    "patch_size": 4,
    "num_position_embeddings": 16,
}
_LINEAR_ATTENTION = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}


def _sees(text: str, vision: str, **more: Any) -> dict[str, Any]:
    return {
        "text_config": {**_TEXT, "model_type": text},
        "vision_config": {**_VISION, "model_type": vision},
        **more,
    }


CAUSAL: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("mistral", "gemma2", "phi3", "olmo2", "cohere", "glm4", "gpt_neox"), _TEXT),
    "bloom": {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 131},
    "opt": {
        "hidden_size": 64,
        "word_embed_proj_dim": 64,
        "ffn_dim": 104,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 131,
        "max_position_embeddings": 128,
    },
    "olmoe": _MOE,
    "gpt_oss": {
        **_TEXT,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "layer_types": ["full_attention"] * 2,
    },
    "qwen3_next": {**_MOE, **_LINEAR_ATTENTION, "shared_expert_intermediate_size": 40},
}
SEEING: dict[str, dict[str, Any]] = {
    "llava": _sees("llama", "clip_vision_model", image_token_index=120),
    "mistral3": _sees("mistral", "pixtral", image_token_index=120),
    "paligemma": _sees("gemma", "siglip_vision_model", projection_dim=64, image_token_index=120),
    "qwen2_vl": {
        "text_config": {**_TEXT, "rope_parameters": _ROPE},
        "vision_config": {"depth": 2, "embed_dim": 32, "num_heads": 2, "hidden_size": 64},
    },
    "qwen3_vl": {
        "text_config": {**_TEXT, "rope_parameters": _ROPE},
        "vision_config": {**_TOWER, "deepstack_visual_indexes": [0]},
    },
    "qwen3_5": {"text_config": {**_TEXT, **_LINEAR_ATTENTION}, "vision_config": _TOWER},
    "llama4": {
        "text_config": {**_TEXT, "num_local_experts": 4, "intermediate_size_mlp": 104},
        "vision_config": _VISION,
    },
}
SEQUENCES: dict[str, dict[str, Any]] = {
    "t5": {"d_model": 64, "d_ff": 104, "num_layers": 2, "num_heads": 4, "d_kv": 16},
    "bart": {
        "d_model": 64,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_ffn_dim": 104,
        "decoder_ffn_dim": 104,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "vocab_size": 131,
    },
}
MASKED: dict[str, dict[str, Any]] = {
    "bert": _TEXT,
    "modernbert": {**_TEXT, "cls_token_id": 1, "sep_token_id": 2},
    "electra": {**_TEXT, "embedding_size": 64},
}
FAMILIES = (*CAUSAL, *SEEING, *SEQUENCES, *MASKED)


def make_family(root: Path, kind: str) -> tuple[Path, Path, dict[str, Any]]:
    """(base, adapter on all linear layers, PEFT's merge by on-disk name), in bfloat16."""
    import torch
    import transformers
    from oracle import stored
    from peft import LoraConfig, PeftModel, get_peft_model

    names = {
        "AutoModelForCausalLM": CAUSAL,
        "AutoModelForImageTextToText": SEEING,
        "AutoModelForSeq2SeqLM": SEQUENCES,
        "AutoModelForMaskedLM": MASKED,
    }
    loader, fields = next(
        (getattr(transformers, name), table[kind]) for name, table in names.items() if kind in table
    )
    base, adapter, merged = root / "base", root / "adapter", root / "merged"
    torch.manual_seed(5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Conv1D, missing token ids
        config = transformers.AutoConfig.for_model(kind, **fields)
        loader.from_config(config, dtype=torch.bfloat16).save_pretrained(base)
        save_tokenizer(base)
        peft = get_peft_model(loader.from_pretrained(base), LoraConfig(target_modules="all-linear"))
        trained(peft)
        peft.save_pretrained(adapter, save_embedding_layers=False)
        peft = PeftModel.from_pretrained(loader.from_pretrained(base), adapter)
        peft.merge_and_unload().save_pretrained(merged)
    return base, adapter, stored(merged)
