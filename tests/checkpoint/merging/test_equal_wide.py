"""Tensors of many blocks: where one ends and the next begins must not show in the bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from oracle import assert_same_bytes, peft_merged, stored
from our_merge import merged, no_processes
from zoo import Zoo

# About a million elements a matrix. Blocks have 262144: one row more than whole blocks, where that
# can be, so that a last block of one row would show.
WIDE: dict[str, dict[str, int]] = {
    "llama": {"intermediate_size": 4 * 4096 + 1, "vocab_size": 5 * 4096 + 1},
    "qwen2": {"intermediate_size": 4 * 4096 + 1, "vocab_size": 5 * 4096 + 1},
    "gpt2": {"n_inner": 4 * 5461 + 1, "vocab_size": 4 * 5461 + 2},
    "mixtral": {"intermediate_size": 2 * 4096 + 8},
    "qwen3_moe": {"moe_intermediate_size": 2 * 4096 + 8},
}


@pytest.fixture(scope="module", autouse=True)
def _here() -> Any:
    with no_processes():
        yield


@pytest.mark.parametrize(
    ("kind", "variant"),
    [
        *((kind, v) for kind in ("llama", "gpt2") for v in ("plain", "dora", "rank 48", "rank 1")),
        *(("llama", v) for v in ("embedding and head", "far tokens", "save both", "resized")),
        ("llama", "resized embedding"),
        ("qwen2", "save both tied"),
        ("gpt2", "bias all"),
        ("gpt2", "lora bias"),
        ("mixtral", "gate_up and down"),
        ("mixtral", "old experts"),
        ("qwen3_moe", "gate_up and down"),
    ],
)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_bytes_are_those_of_peft(
    zoo: Zoo, tmp_path: Path, kind: str, variant: str, dtype: str
) -> None:
    base, adapter = zoo.pair(kind, variant, dtype, **WIDE[kind])
    ours, report = merged(base, adapter, tmp_path / "out")
    theirs = peft_merged.__wrapped__(base, adapter)  # too large to be kept
    assert_same_bytes(ours, theirs)
    before = stored(base)
    moved = sum(
        int((ours[name] != tensor).sum())
        for name, tensor in before.items()
        if ours[name].shape == tensor.shape
    )
    assert report["moved_elements"] >= moved > 1_000


@pytest.mark.parametrize("variants", [("plain", "rslora"), ("dora", "second")], ids=" then ".join)
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_adapters_in_turn(zoo: Zoo, tmp_path: Path, kind: str, variants: tuple[str, ...]) -> None:
    base = zoo.base(kind, **WIDE[kind])
    adapters = [zoo.adapter(base, variant) for variant in variants]
    ours, _ = merged(base, adapters, tmp_path / "out")
    assert_same_bytes(ours, peft_merged.__wrapped__(base, *adapters))


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mixtral"])
def test_another_dtype(zoo: Zoo, tmp_path: Path, kind: str) -> None:
    """float32 rounded to bfloat16 at the end: what the exact float32 merge gives when rounded."""
    import torch

    variant = "gate_up" if kind == "mixtral" else "plain"
    base, adapter = zoo.pair(kind, variant, "float32", **WIDE[kind])
    exact, _ = merged(base, adapter, tmp_path / "exact")
    ours, _ = merged(base, adapter, tmp_path / "out", dtype="bfloat16")
    if kind != "mixtral":  # experts round their change first
        assert_same_bytes(ours, {name: t.to(torch.bfloat16) for name, t in exact.items()})
    for name, tensor in exact.items():
        assert torch.allclose(ours[name].float(), tensor, rtol=2**-7, atol=2**-9), name
