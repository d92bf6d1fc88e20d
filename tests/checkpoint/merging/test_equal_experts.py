"""Experts: adapters on fused parameters and on single expert modules, into per-expert files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from oracle import adapter_logits, assert_same_bytes, merged_logits, peft_merged, stored
from our_merge import merged, no_processes
from zoo import DTYPES, EXPERTS, Zoo

FUSED = ("gate_up", "down", "gate_up and down")
OLD = ("old experts", "old down")
# PEFT leaves out adapters of single experts beside a shared one, and says nothing. With rsLoRA it
# doubles alpha and rank of what it fuses, which makes the change √2 times as large.
CONVERTED = ("mixtral", "qwen3_moe")


@pytest.fixture(scope="module", autouse=True)
def _here() -> Any:
    with no_processes():
        yield


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("kind", "variant"),
    [
        *((kind, variant) for kind in EXPERTS for variant in FUSED),
        *((kind, variant) for kind in CONVERTED for variant in OLD),
    ],
)
def test_bytes_are_those_of_peft(
    zoo: Zoo, tmp_path: Path, kind: str, variant: str, dtype: str
) -> None:
    base, adapter = zoo.pair(kind, variant, dtype)
    ours, _ = merged(base, adapter, tmp_path / "out")
    assert_same_bytes(ours, peft_merged(base, adapter))


@pytest.mark.parametrize(
    ("kind", "variant"),
    [
        *((kind, variant) for kind in EXPERTS for variant in (*FUSED, "plain")),
        *((kind, "old experts") for kind in CONVERTED),
    ],
)
def test_answers_are_those_of_the_adapter(
    zoo: Zoo, tmp_path: Path, kind: str, variant: str
) -> None:
    base, adapter = zoo.pair(kind, variant, "float32")
    merged(base, adapter, tmp_path / "out")
    wanted = adapter_logits(base, adapter, double=True)
    assert (merged_logits(tmp_path / "out", double=True) - wanted).abs().max() < 2e-6
    assert (merged_logits(base, double=True) - wanted).abs().max() > 1e-3


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", [*OLD, "old experts rslora", "old gate only", "old gate_up"])
@pytest.mark.parametrize("kind", EXPERTS)
def test_adapters_of_single_experts_whatever_peft_makes_of_them(
    zoo: Zoo, tmp_path: Path, kind: str, variant: str, dtype: str
) -> None:
    """Each expert's own W + s·B·A; other tensors stay as they are."""
    import torch

    base, adapter = zoo.pair(kind, variant, dtype)
    ours, _ = merged(base, adapter, tmp_path / "out")
    before, factors = stored(base), stored(adapter)
    assert ours.keys() == before.keys()
    touched = 0
    for name, weight in before.items():
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{stem}.lora_A.weight" not in factors:
            assert torch.equal(ours[name], weight), name
            continue
        touched += 1
        a, b = (factors[f"{stem}.lora_{side}.weight"].double() for side in "AB")
        delta = 7 / (3**0.5 if "rslora" in variant else 3) * (b @ a)
        exact = weight.double() + delta
        step = torch.finfo(weight.dtype).eps
        # Half a step of the rounded delta, half a step of the sum, and float32 in between.
        bound = step * (delta.abs() + exact.abs()) / 2 * 1.01 + 1e-7
        assert ((ours[name].double() - exact).abs() <= bound).all(), name
    assert touched == len(factors) // 2


@pytest.mark.parametrize("variant", ["gate_up and down", "old experts"])
@pytest.mark.parametrize("kind", EXPERTS)
def test_after_another_adapter(zoo: Zoo, tmp_path: Path, kind: str, variant: str) -> None:
    base = zoo.base(kind)
    pair = [zoo.adapter(base, name) for name in ("plain", variant)]
    ours, _ = merged(base, pair, tmp_path / "out")
    one, _ = merged(base, pair[1], tmp_path / "one")
    other, _ = merged(base, pair[0], tmp_path / "other")
    before = stored(base)
    for name, tensor in ours.items():
        if not (one[name] == before[name]).all() and not (other[name] == before[name]).all():
            continue  # both change it: two roundings
        alone = one if (other[name] == before[name]).all() else other
        assert (tensor == alone[name]).all(), name
    assert len([name for name in ours if not (ours[name] == before[name]).all()]) > 24


@pytest.mark.parametrize("kind", EXPERTS)
def test_experts_in_shards(zoo: Zoo, tmp_path: Path, kind: str) -> None:
    """One fused factor is cut for files that do not know of each other."""
    base, adapter = zoo.pair(kind, "gate_up and down", shard="60KB")
    ours, _ = merged(base, adapter, tmp_path / "out")
    assert_same_bytes(ours, peft_merged(base, adapter))
