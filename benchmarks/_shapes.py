"""Models of real shapes with random weights, written as fast as the disk takes them.

No model is built: the names are those of the files on the Hub. A block of random numbers is used
again for every tensor, from another place each time; a merge does not see the difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_POOL = 1 << 25
_SHARD = 4_000_000_000


@dataclass(frozen=True)
class Shape:
    """A Qwen model in bfloat16 and a LoRA on it.

    Args:
        words: what it is called in the results.
        experts: 0 for a dense model.
        adapter: further fields of adapter_config.json.
    """

    words: str
    layers: int
    width: int
    inner: int
    heads: int
    key_heads: int
    vocabulary: int
    tied: bool
    head: int = 64
    experts: int = 0
    rank: int = 16
    dora: bool = False

    def config(self) -> dict[str, Any]:
        """Fields of config.json."""
        kind = "qwen3_moe" if self.experts else "qwen2"
        architecture = "Qwen3MoeForCausalLM" if self.experts else "Qwen2ForCausalLM"
        fields = {
            "architectures": [architecture], "model_type": kind, "dtype": "bfloat16",
            "hidden_size": self.width, "intermediate_size": self.inner,
            "num_hidden_layers": self.layers, "vocab_size": self.vocabulary,
            "num_attention_heads": self.heads, "num_key_value_heads": self.key_heads,
            "tie_word_embeddings": self.tied, "head_dim": self.head,
        }  # fmt: skip
        if self.experts:
            fields |= {
                "num_experts": self.experts, "moe_intermediate_size": self.inner,
                "num_experts_per_tok": 2, "decoder_sparse_step": 1, "mlp_only_layers": [],
            }  # fmt: skip
        return fields

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name → shape of every tensor."""
        found = {"model.embed_tokens.weight": (self.vocabulary, self.width)}
        for layer in range(self.layers):
            found |= {f"model.layers.{layer}.{n}": s for n, s in self._layer()}
        found["model.norm.weight"] = (self.width,)
        if not self.tied:
            found["lm_head.weight"] = (self.vocabulary, self.width)
        return dict(sorted(found.items()))

    def linear(self) -> dict[str, tuple[int, int]]:
        """Targeted linear layers of one layer → (out, in)."""
        queries, keys = self.heads * self.head, self.key_heads * self.head
        layers = {
            "self_attn.q_proj": (queries, self.width), "self_attn.k_proj": (keys, self.width),
            "self_attn.v_proj": (keys, self.width), "self_attn.o_proj": (self.width, queries),
        }  # fmt: skip
        return layers if self.experts else {**layers, **self._expert("mlp")}

    def _expert(self, path: str) -> dict[str, tuple[int, int]]:
        wide, narrow = (self.inner, self.width), (self.width, self.inner)
        return {f"{path}.gate_proj": wide, f"{path}.up_proj": wide, f"{path}.down_proj": narrow}

    def _layer(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for name, shape in self.linear().items():
            yield f"{name}.weight", shape
            if not self.experts and name[-6:] in ("q_proj", "k_proj", "v_proj"):
                yield f"{name}.bias", shape[:1]
        yield "input_layernorm.weight", (self.width,)
        yield "post_attention_layernorm.weight", (self.width,)
        if self.experts:
            yield "mlp.gate.weight", (self.experts, self.width)
            yield "self_attn.q_norm.weight", (self.head,)
            yield "self_attn.k_norm.weight", (self.head,)
        for expert in range(self.experts):
            for name, shape in self._expert(f"mlp.experts.{expert}").items():
                yield f"{name}.weight", shape

    def adapter_config(self) -> dict[str, Any]:
        """Fields of adapter_config.json."""
        fields: dict[str, Any] = {
            "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": self.rank,
            "lora_alpha": 2 * self.rank, "use_dora": self.dora,
            "target_modules": list(LINEAR[:4] if self.experts else LINEAR),
        }  # fmt: skip
        if self.experts:
            fields["target_parameters"] = ["experts.gate_up_proj", "experts.down_proj"]
        return fields

    def factors(self) -> dict[str, tuple[int, ...]]:
        """Name → shape of every tensor of the adapter."""
        found: dict[str, tuple[int, ...]] = {}
        for layer in range(self.layers):
            pairs = {name: (out, inner, 1) for name, (out, inner) in self.linear().items()}
            if self.experts:  # the inner wrapper is the parameter that was named first
                pairs["mlp.experts.base_layer"] = (2 * self.inner, self.width, self.experts)
                pairs["mlp.experts"] = (self.width, self.inner, self.experts)
            for name, (out, inner, experts) in pairs.items():
                path = f"base_model.model.model.layers.{layer}.{name}"
                found[f"{path}.lora_A.weight"] = (self.rank * experts, inner)
                found[f"{path}.lora_B.weight"] = (out, self.rank * experts)
                if self.dora and experts == 1:
                    found[f"{path}.lora_magnitude_vector"] = (out,)
        return found


SMALL = Shape(
    "Qwen2.5-0.5B: 24 layers, 896 wide, 4864 inner, 151936 tokens, tied; LoRA r=16 on 7 layers",
    24, 896, 4864, 14, 2, 151_936, True,
)  # fmt: skip
LARGE = Shape(
    "Qwen2.5-7B: 28 layers, 3584 wide, 18944 inner, 152064 tokens; LoRA r=16 on 7 layers",
    28, 3584, 18_944, 28, 4, 152_064, False, head=128,
)  # fmt: skip
DORA = Shape(
    "Qwen2.5-0.5B: 24 layers, 896 wide, 4864 inner, 151936 tokens, tied; DoRA r=16 on 7 layers",
    24, 896, 4864, 14, 2, 151_936, True, dora=True,
)  # fmt: skip
EXPERTS = Shape(
    "Qwen3-MoE: 16 layers, 1024 wide, 32 experts of 512, 32000 tokens; LoRA r=8 on fused experts",
    16, 1024, 512, 16, 4, 32_000, False, experts=32, rank=8,
)  # fmt: skip


def write_model(shape: Shape, path: Path) -> None:
    """Write config and weights, in shards of at most 4 GB."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(shape.config(), indent=2))
    shards: list[dict[str, tuple[int, ...]]] = [{}]
    for name, dimensions in shape.tensors().items():
        held = sum(2 * int(np.prod(d)) for d in shards[-1].values())
        if held + 2 * int(np.prod(dimensions)) > _SHARD:
            shards.append({})
        shards[-1][name] = dimensions
    pool = _random(_POOL).view(np.uint32)
    numbers = (pool >> 16).astype(np.uint16)
    count = len(shards)
    names = [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    if count == 1:
        names = ["model.safetensors"]
    for name, tensors in zip(names, shards, strict=True):
        _write(path / name, "BF16", tensors, numbers)
    if count > 1:
        placed = {key: name for name, shard in zip(names, shards, strict=True) for key in shard}
        total = sum(2 * int(np.prod(d)) for shard in shards for d in shard.values())
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(placed.items()))}
        (path / "model.safetensors.index.json").write_text(json.dumps(index))


def write_adapter(shape: Shape, path: Path, base: Path) -> None:
    """Write a LoRA in float32."""
    path.mkdir()
    fields = {**shape.adapter_config(), "base_model_name_or_path": str(base)}
    (path / "adapter_config.json").write_text(json.dumps(fields))
    pool = _random(_POOL // 4)
    _write(path / "adapter_model.safetensors", "F32", shape.factors(), pool)


def _random(size: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(0).standard_normal(size, np.float32) * np.float32(0.02)


def _write(
    path: Path, dtype: str, tensors: dict[str, tuple[int, ...]], numbers: np.ndarray[Any, Any]
) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, dimensions in tensors.items():
        size = int(np.prod(dimensions)) * numbers.itemsize
        offsets = [position, position + size]
        header[name] = {"dtype": dtype, "shape": dimensions, "data_offsets": offsets}
        position += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for number, dimensions in enumerate(tensors.values()):
            left, start = int(np.prod(dimensions)), number * 7919 % (numbers.size // 2)
            while left:
                some = numbers[start : start + left]
                stream.write(some.data)
                left, start = left - some.size, 0
