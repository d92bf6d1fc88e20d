"""Tiny models of eight architectures, stored as people have them on disk, each made once.

Sizes are odd and differ, so that a transposed or shifted matrix shows; biases and norms are not
zero, so that a forgotten one shows too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny_models import save_tokenizer
from zoo_adapters import make_adapter

_TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 107,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 131,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_VISION: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 53, "patch_size": 4}
_FIELDS: dict[str, dict[str, Any]] = {
    "llama": _TEXT,
    "qwen2": {**_TEXT, "tie_word_embeddings": True},
    "qwen3": _TEXT,
    "gpt2": {
        "n_embd": 48,
        "n_inner": 107,
        "n_layer": 2,
        "n_head": 4,
        "vocab_size": 131,
        "n_positions": 128,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "mixtral": {
        **_TEXT,
        "intermediate_size": 56,  # grouped products want strides of 16 bytes
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    "qwen3_moe": {
        **_TEXT,
        "moe_intermediate_size": 40,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "mlp_only_layers": [],
    },
    "qwen2_moe": {
        **_TEXT,
        "moe_intermediate_size": 40,
        "shared_expert_intermediate_size": 72,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "mlp_only_layers": [],
    },
    "qwen2_5_vl": {
        "text_config": {
            **_TEXT,
            "rope_parameters": {
                "rope_type": "default",
                "mrope_section": [2, 3, 3],
                "rope_theta": 10000.0,
            },
        },
        "vision_config": {
            **_VISION,
            "depth": 2,
            "num_heads": 2,
            "out_hidden_size": 64,
            "window_size": 16,
            "fullatt_block_indexes": [1],
        },
        "image_token_id": 120,
        "video_token_id": 121,
        "vision_start_token_id": 122,
        "vision_end_token_id": 123,
        "tie_word_embeddings": False,
    },
    "gemma3": {
        "text_config": {**_TEXT, "tie_word_embeddings": True, "sliding_window": 64},
        "vision_config": {
            **_VISION,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 16,
            "vision_use_head": False,
        },
        "mm_tokens_per_image": 4,
        "image_token_index": 120,
        "boi_token_index": 122,
        "eoi_token_index": 123,
    },
    "gemma3_text": {**_TEXT, "tie_word_embeddings": True, "sliding_window": 64},
}
KINDS = tuple(_FIELDS)
VISUAL = ("qwen2_5_vl", "gemma3")
EXPERTS = ("mixtral", "qwen3_moe", "qwen2_moe")
DTYPES = ("float32", "bfloat16", "float16")


class Zoo:
    """Bases and adapters under one folder; asking twice gives the same directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def base(
        self,
        kind: str,
        dtype: str = "bfloat16",
        *,
        tied: bool | None = None,
        shard: str | None = None,
        **fields: Any,
    ) -> Path:
        """A base model.

        Args:
            kind: one of KINDS.
            dtype: `float32`, `bfloat16` or `float16`.
            tied: whether output and input embedding are one; None: as usual for this kind.
            shard: largest shard, for example `60KB`; None: one file.
            fields: changes to its (text) configuration.
        """
        extra = "".join(f"-{name}={value}" for name, value in sorted(fields.items()))
        path = self._root / f"{kind}-{dtype}-tied={tied}-{shard}{extra}" / "base"
        if not path.exists():
            _save_base(path, kind, dtype, tied, shard, fields)
        return path

    def adapter(self, base: Path, variant: str) -> Path:
        """The adapter of this variant (see `zoo_adapters.VARIANTS`) for one of our bases."""
        path = base.parent / variant
        if not path.exists():
            make_adapter(path, base, variant)
        return path

    def pair(
        self, kind: str, variant: str, dtype: str = "bfloat16", **options: Any
    ) -> tuple[Path, Path]:
        """(base, adapter)."""
        base = self.base(kind, dtype, **options)
        return base, self.adapter(base, variant)


def config_of(kind: str, tied: bool | None = None, **fields: Any) -> Any:
    """The configuration of a kind."""
    from transformers import AutoConfig

    values = dict(_FIELDS[kind])
    if tied is not None:
        values["tie_word_embeddings"] = tied
        fields["tie_word_embeddings"] = tied
    if kind in VISUAL:
        values["text_config"] = {**values["text_config"], **fields}
    else:
        values.update(fields)
    return AutoConfig.for_model(kind, **values)


def _save_base(
    path: Path,
    kind: str,
    dtype: str,
    tied: bool | None,
    shard: str | None,
    fields: dict[str, Any],
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    torch.manual_seed(7)
    loader = AutoModelForImageTextToText if kind in VISUAL else AutoModelForCausalLM
    model = loader.from_config(config_of(kind, tied, **fields), dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 or not parameter.any():
                parameter.add_(torch.randn(parameter.shape) * 0.05)
            elif "embed" not in name:
                parameter.mul_(2)  # so that a tiny model's answers depend on every layer
    options = {"max_shard_size": shard} if shard else {}
    model.to(getattr(torch, dtype)).save_pretrained(path, **options)
    if kind == "gemma3":
        _rename(path, "vision_tower.", "vision_tower.vision_model.")
    save_tokenizer(path)
    (path / "LICENSE").write_text("licence of the base\n")
    (path / "NOTICE.txt").write_text("notice of the base\n")


def _rename(path: Path, old: str, new: str) -> None:
    # save_pretrained restores old names only for a model that was loaded from them.
    from safetensors.torch import load_file, save_file

    for file in path.glob("*.safetensors"):
        tensors = {
            new + name.removeprefix(old) if name.startswith(old) else name: tensor
            for name, tensor in load_file(file).items()
        }
        save_file(tensors, file, metadata={"format": "pt"})
    index = path / "model.safetensors.index.json"
    if index.exists():
        index.write_text(index.read_text().replace(f'"{old}', f'"{new}'))
