"""Adapters of PEFT's other types, for tiny models: what each needs besides its targets."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from oracle import load_base

from hubtools.checkpoint.adapter_kinds import THROUGH_PEFT

UNTRAINABLE = {"ADAMSS"}  # wants scikit-learn
_PROJECTIONS: dict[str, Any] = {"target_modules": ["q_proj", "v_proj"]}
_OPTIONS: dict[str, dict[str, Any]] = {
    "ADALORA": {"total_step": 10},
    "BOFT": {"boft_block_size": 8},
    "C3A": {"block_size": 8},
    "FOURIERFT": {"n_frequency": 30},
    "IA3": {
        "target_modules": ["k_proj", "v_proj", "down_proj"],
        "feedforward_modules": ["down_proj"],
    },
    "LN_TUNING": {"target_modules": ["input_layernorm"]},
    "OFT": {"oft_block_size": 8, "r": 0},
    "ROAD": {"group_size": 16},
    "SHIRA": {"r": 4},
    "TRAINABLE_TOKENS": {"target_modules": None, "token_indices": [3, 5, 9]},
    "VBLORA": {"num_vectors": 8, "vector_length": 8, "r": 2},
    "WAVEFT": {"n_frequency": 32},
}
TYPES = sorted(THROUGH_PEFT - UNTRAINABLE)


def save_other(path: Path, base: Path, kind: str, **more: Any) -> Path:
    """An adapter of this type, with every parameter moved away from where it started."""
    import torch
    from peft import PeftType, get_peft_model
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    options = {**_PROJECTIONS, **_OPTIONS.get(kind, {}), "task_type": "CAUSAL_LM", **more}
    if options["target_modules"] is None:
        del options["target_modules"]
    torch.manual_seed(sum(kind.encode()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = PEFT_TYPE_TO_CONFIG_MAPPING[PeftType[kind]](**options)
        model = get_peft_model(load_base(base), config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad and parameter.is_floating_point():
                    noise = torch.randn(parameter.shape) * 0.05
                    parameter.add_(noise.to(parameter.dtype))
        model.save_pretrained(path, save_embedding_layers=False)
    return path
