"""The figures of a merge's report against what the files themselves say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from oracle import peft_merged, stored
from our_merge import merged, no_processes
from zoo import Zoo


@pytest.fixture(scope="module", autouse=True)
def _here() -> Any:
    with no_processes():
        yield


def kind_of(name: str) -> str:
    """`q_proj` or `q_proj.bias`; for a tensor of one of many experts `experts.w1`."""
    *path, module, last = name.split(".")
    module = f"experts.{module}" if "experts" in path else module
    return f"{module}.bias" if last == "bias" else module


CASES = [
    ("llama", "plain"),
    ("llama", "patterns"),
    ("llama", "dora"),
    ("llama", "save both"),
    ("llama", "tokens"),
    ("llama", "embedding and head"),
    ("qwen2", "bias all"),
    ("gpt2", "plain"),
    ("mixtral", "gate_up and down"),
    ("qwen3_moe", "old experts"),
]


@pytest.mark.parametrize(("kind", "variant"), CASES)
def test_norms_and_counts_by_kind(zoo: Zoo, tmp_path: Path, kind: str, variant: str) -> None:
    """In float32, where the stored difference is the exact one to a millionth."""
    base, adapter = zoo.pair(kind, variant, "float32")
    _, report = merged(base, adapter, tmp_path / "out")
    before, after = stored(base), peft_merged(base, adapter)
    changed = [name for name in before if not (before[name] == after[name]).all()]
    assert report["changed_tensors"] == len(changed)
    assert report["finite"] is True
    assert report["kinds"].keys() == {kind_of(name) for name in changed}
    for kind_name, figures in report["kinds"].items():
        names = [name for name in changed if kind_of(name) == kind_name]
        elements = sum(before[name].numel() for name in names)
        moved = sum(int((before[name] != after[name]).sum()) for name in names)
        weight = math.hypot(*(float(before[name].double().norm()) for name in names))
        delta = math.hypot(
            *(float((after[name].double() - before[name].double()).norm()) for name in names)
        )
        assert figures["tensors"] == len(names)
        assert figures["elements"] == elements
        assert figures["moved_elements"] == moved
        assert math.isclose(figures["unmoved_share"], 1 - moved / elements, abs_tol=1e-5)
        assert math.isclose(figures["weight_norm"], weight, rel_tol=1e-4)
        assert math.isclose(figures["delta_norm"], delta, rel_tol=1e-4)
        assert math.isclose(figures["relative_change"], delta / weight, rel_tol=1e-4)
    assert report["changed_elements"] == sum(k["elements"] for k in report["kinds"].values())
    assert report["moved_elements"] == sum(k["moved_elements"] for k in report["kinds"].values())


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_the_change_that_was_asked_for_and_not_what_rounding_left(
    zoo: Zoo, tmp_path: Path, kind: str
) -> None:
    """The norm is that of the exact change, also where bfloat16 keeps less of it."""
    half, adapter = zoo.pair(kind, "plain", "bfloat16")
    _, report = merged(half, adapter, tmp_path / "out")
    tensors = stored(adapter)
    exact: dict[str, float] = {}
    for name, a in tensors.items():
        if "lora_A" in name:
            b = tensors[name.replace("lora_A", "lora_B")]
            kind_name = name.split(".")[-3]
            exact[kind_name] = math.hypot(
                exact.get(kind_name, 0.0), 3 * float((b.double() @ a.double()).norm())
            )
    found = {name: figures["delta_norm"] for name, figures in report["kinds"].items()}
    assert found.keys() == exact.keys()
    assert all(math.isclose(found[name], exact[name], rel_tol=1e-4) for name in exact)


def test_of_several_adapters_the_sum_counts(zoo: Zoo, tmp_path: Path) -> None:
    base = zoo.base("llama", "float32")
    pair = [zoo.adapter(base, variant) for variant in ("plain", "second")]
    _, report = merged(base, pair, tmp_path / "out")
    before, after = stored(base), peft_merged(base, *pair)
    names = [name for name in before if "q_proj" in name]
    delta = math.hypot(*(float((after[n].double() - before[n].double()).norm()) for n in names))
    assert math.isclose(report["kinds"]["q_proj"]["delta_norm"], delta, rel_tol=1e-4)
    assert len(report["adapters"]) == 2
