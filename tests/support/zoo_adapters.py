"""Adapters of every kind that is merged, for the tiny models of `zoo`, made and saved by PEFT.

Where PEFT can no longer write a layout (experts and prefixes of transformers 4.x), its own file is
renamed, or written tensor by tensor in the shapes of the base.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_LINEAR = {
    "llama": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "qwen2": ["q_proj", "v_proj", "down_proj"],
    "qwen3": ["q_proj", "k_proj", "o_proj", "up_proj"],
    "gpt2": ["c_attn", "c_proj", "c_fc"],
    "mixtral": ["q_proj", "v_proj", "o_proj"],
    "qwen3_moe": ["q_proj", "k_proj", "o_proj"],
    "qwen2_moe": ["q_proj", "v_proj", "shared_expert.gate_proj", "shared_expert.down_proj"],
    "qwen2_5_vl": ["q_proj", "v_proj", "down_proj", "qkv"],
    "gemma3": ["q_proj", "o_proj", "up_proj", "fc1"],
    "gemma3_text": ["q_proj", "o_proj", "down_proj"],
}
_EMBEDDING = {"gpt2": "wte"}
_OLD_EXPERTS = {
    "mixtral": ("block_sparse_moe.experts", ("w1", "w3", "w2")),
    "qwen3_moe": ("mlp.experts", ("gate_proj", "up_proj", "down_proj")),
    "qwen2_moe": ("mlp", ("gate_proj", "up_proj", "down_proj")),  # the shared one, too
}
# What the text model is called in memory, and in checkpoints and adapters of transformers 4.x.
OLD_PREFIXES = {
    "qwen2_5_vl": {"model.language_model.": "model.", "model.visual.": "visual."},
    "gemma3": {
        "model.language_model.": "language_model.model.",
        "model.vision_tower.": "vision_tower.vision_model.",
    },
}

Options = dict[str, Any]


def _linear(kind: str) -> Options:
    return {"target_modules": _LINEAR[kind]}


def _plus(**more: Any) -> Callable[[str], Options]:
    return lambda kind: {**_linear(kind), **more}


def _embedding(kind: str) -> str:
    return _EMBEDDING.get(kind, "embed_tokens")


def _patterns(kind: str) -> Options:
    first, last = _LINEAR[kind][0], _LINEAR[kind][-1]
    return {
        "target_modules": _LINEAR[kind],
        "rank_pattern": {first: 4, rf".*\.1\..*{last}": 3},
        "alpha_pattern": {last: 5, rf".*\.0\..*{first}": 7},
    }


def _parameters(*names: str) -> Callable[[str], Options]:
    return lambda kind: {
        "target_modules": ["q_proj"],
        "target_parameters": [f"experts.{name}" for name in names],
        "r": 3,
    }


# Name → options of LoraConfig for a kind of model.
VARIANTS: dict[str, Callable[[str], Options]] = {
    "plain": _linear,
    "second": lambda kind: {"target_modules": _LINEAR[kind][:2], "r": 5, "lora_alpha": 9},
    "rslora": _plus(use_rslora=True, r=5),
    "patterns": _patterns,
    "rslora patterns": lambda kind: {**_patterns(kind), "use_rslora": True},
    "some layers": _plus(layers_to_transform=[1]),
    "gaussian": _plus(init_lora_weights="gaussian"),
    "orthogonal": _plus(init_lora_weights="orthogonal"),
    "rank 1": _plus(r=1),
    "rank 48": _plus(r=48),
    "dora": _plus(use_dora=True),
    "dora rslora": _plus(use_dora=True, use_rslora=True, r=5),
    "lora bias": lambda kind: {
        "target_modules": ["c_attn", "c_fc"] if kind == "gpt2" else ["q_proj", "v_proj"],
        "lora_bias": True,
    },
    "bias lora_only": _plus(bias="lora_only"),
    "bias all": _plus(bias="all"),
    "head": lambda kind: {"target_modules": [*_LINEAR[kind][:1], "lm_head"]},
    "embedding": lambda kind: {"target_modules": [*_LINEAR[kind][:1], _embedding(kind)]},
    "embedding and head": lambda kind: {
        "target_modules": [*_LINEAR[kind][:1], _embedding(kind), "lm_head"]
    },
    "tied embedding": lambda kind: {
        "target_modules": [*_LINEAR[kind][:1], _embedding(kind)],
        "ensure_weight_tying": True,
    },
    "save head": _plus(modules_to_save=["lm_head"]),
    "save embedding": lambda kind: {**_linear(kind), "modules_to_save": [_embedding(kind)]},
    "save both": lambda kind: {**_linear(kind), "modules_to_save": [_embedding(kind), "lm_head"]},
    "save both tied": lambda kind: {
        **_linear(kind),
        "modules_to_save": [_embedding(kind), "lm_head"],
        "ensure_weight_tying": True,
    },
    "save norm": _plus(modules_to_save=["norm"]),
    "tokens": lambda kind: {**_linear(kind), "trainable_token_indices": [3, 99, 7]},
    "tokens by name": lambda kind: {
        **_linear(kind),
        "trainable_token_indices": {_embedding(kind): [5, 0, 130]},
    },
    "far tokens": lambda kind: {
        **_linear(kind),
        "trainable_token_indices": {_embedding(kind): [20_480, 3, 9_000, 4_096, 20_479, 4_095]},
    },
    "resized": _linear,
    "resized embedding": lambda kind: {
        "target_modules": [*_LINEAR[kind][:1], _embedding(kind), "lm_head"]
    },
    "replicated": _plus(layer_replication=[[0, 2], [0, 2]]),
    "gate_up": _parameters("gate_up_proj"),
    "down": _parameters("down_proj"),
    "gate_up and down": _parameters("gate_up_proj", "down_proj"),
    "classifier": lambda kind: {**_linear(kind), "task_type": "SEQ_CLS"},
}
# Written tensor by tensor, as transformers 4.x made them: which of the three matrices, the rest.
OLD_EXPERT_VARIANTS: dict[str, tuple[tuple[int, ...], Options]] = {
    "old experts": ((0, 1, 2), {}),
    "old experts rslora": ((0, 1, 2), {"use_rslora": True}),
    "old gate_up": ((0, 1), {}),
    "old down": ((2,), {}),
    "old gate only": ((0,), {}),
}
ADDED_TOKENS = 5


def make_adapter(path: Path, base: Path, variant: str) -> None:
    """Write the adapter.

    The same values as `plain` have: `bin`, a pickle; `nested`, in the folder that PEFT makes for an
    adapter not called default; `bfloat16` and `float16`, rounded to that; `old names`, with the
    module names of transformers 4.x.
    """
    kind = json.loads((base / "config.json").read_bytes())["model_type"]
    if variant in OLD_EXPERT_VARIANTS:
        _old_experts(path, base, kind, *OLD_EXPERT_VARIANTS[variant])
    elif variant in VARIANTS:
        _by_peft(path, base, variant, VARIANTS[variant](kind))
    elif variant == "nested":
        _by_peft(path, base, "plain", _linear(kind), name="policy")
    else:
        _by_peft(path, base, "plain", _linear(kind))
        _rewritten(path, kind, variant)


def _by_peft(path: Path, base: Path, variant: str, options: Options, name: str = "default") -> None:
    import torch
    from oracle import load_base
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(sum(variant.encode()))
    options = {"r": 8, "lora_alpha": 24, "task_type": "CAUSAL_LM", **options}
    model = load_base(base, classes=3 if options["task_type"] == "SEQ_CLS" else 0)
    if variant.startswith("resized"):
        model.resize_token_embeddings(model.get_input_embeddings().num_embeddings + ADDED_TOKENS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on tied weights, replication and Conv1D
        peft = get_peft_model(model, LoraConfig(**options), adapter_name=name)
        trained(peft)
        peft.save_pretrained(path, save_embedding_layers=variant.startswith("resized"))


def trained(peft: Any) -> None:
    """Move every trainable parameter away from where it started."""
    import torch

    with torch.no_grad():
        for name, parameter in peft.named_parameters():
            if not parameter.requires_grad:
                continue
            noise = torch.randn(parameter.shape).to(parameter.dtype)
            if "lora_magnitude_vector" in name:
                parameter.mul_(1 + noise * 0.1)
            elif "lora_" in name:
                parameter.copy_(noise * 0.05)
            else:
                parameter.add_(noise * 0.05)


def _rewritten(path: Path, kind: str, variant: str) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    file = path / "adapter_model.safetensors"
    tensors = load_file(file)
    if variant == "bin":
        torch.save(tensors, path / "adapter_model.bin")
        file.unlink()
    elif variant == "old names":
        save_file({_old_name(name, kind): tensor for name, tensor in tensors.items()}, file)
    else:
        dtype = getattr(torch, variant)
        save_file({name: tensor.to(dtype) for name, tensor in tensors.items()}, file)


def _old_name(name: str, kind: str) -> str:
    head = "base_model.model."
    for new, old in OLD_PREFIXES[kind].items():
        if name.startswith(head + new):
            return head + old + name[len(head + new) :]
    return name


def _old_experts(
    path: Path, base: Path, kind: str, which: tuple[int, ...], options: Mapping[str, Any]
) -> None:
    import torch
    from peft import LoraConfig
    from safetensors import safe_open
    from safetensors.torch import save_file

    torch.manual_seed(23)
    block, names = _OLD_EXPERTS[kind]
    chosen = [names[index] for index in which]
    tensors = {}
    with safe_open(base / "model.safetensors", "pt") as file:
        for key in file.keys():
            module = key.removesuffix(".weight")
            if f".{block}." in key and module.rsplit(".", 1)[-1] in chosen:
                rows, columns = file.get_slice(key).get_shape()
                stem = f"base_model.model.{module}"
                tensors[f"{stem}.lora_A.weight"] = torch.randn(3, columns) * 0.05
                tensors[f"{stem}.lora_B.weight"] = torch.randn(rows, 3) * 0.05
    path.mkdir()
    save_file(tensors, path / "adapter_model.safetensors", metadata={"format": "pt"})
    LoraConfig(
        r=3,
        lora_alpha=7,
        target_modules=chosen,
        task_type="CAUSAL_LM",
        base_model_name_or_path=str(base),
        inference_mode=True,
        **options,
    ).save_pretrained(path)
