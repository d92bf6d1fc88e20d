"""Where bytes need not be PEFT's: one rounding of the exact result, whatever dtype is asked for."""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from oracle import adapter_logits, load_base, merged_logits, peft_merged, stored
from our_merge import merged, no_processes
from zoo import DTYPES, Zoo
from zoo_adapters import trained

from hubtools.checkpoint.shards import read_weights


@pytest.fixture(scope="module", autouse=True)
def _here() -> Any:
    with no_processes():
        yield


def factors_of(adapter: Path) -> dict[str, tuple[Any, Any]]:
    """Base tensor name → (A, B) in float64, for adapters whose names are those on disk."""
    tensors = stored(adapter)
    found = {}
    for name, a in tensors.items():
        if name.endswith(".lora_A.weight"):
            stem = name.removesuffix(".lora_A.weight")
            b = tensors[f"{stem}.lora_B.weight"]
            found[stem.removeprefix("base_model.model.") + ".weight"] = (a.double(), b.double())
    return found


def assert_rounded_once(
    ours: Mapping[str, Any],
    base: Mapping[str, Any],
    adapter: Path,
    scaling: float,
    dtype: str,
    *,
    transposed: bool = False,
) -> int:
    """Every tensor is the exact sum in `dtype` to half a step; the untouched ones are a cast.

    Args:
        transposed: weights are stored as [in, out].

    Returns:
        how many tensors had factors.
    """
    import torch

    target = getattr(torch, dtype)
    half, least = torch.finfo(target).eps / 2, torch.finfo(target).smallest_normal
    factors = factors_of(adapter)
    assert ours.keys() == base.keys()
    for name, weight in base.items():
        assert ours[name].dtype == target, name
        if name not in factors:
            assert torch.equal(ours[name], weight.to(target)), name
            continue
        a, b = factors[name]
        delta, size = scaling * (b @ a), scaling * (b.abs() @ a.abs())
        if transposed:
            delta, size = delta.T, size.T
        exact = weight.double() + delta
        # Sums of rank + 2 terms in float32.
        size = weight.double().abs() + size
        single = (a.shape[0] + 2) * torch.finfo(torch.float32).eps / 2 * size
        bound = half * exact.abs().clamp(min=least) + single * (1 + half)
        assert ((ours[name].double() - exact).abs() <= bound).all(), name
    return len(factors)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen3", "mixtral"])
def test_each_dtype_is_kept_and_rounded_once(
    zoo: Zoo, tmp_path: Path, kind: str, dtype: str
) -> None:
    base, adapter = zoo.pair(kind, "plain", dtype)
    ours, _ = merged(base, adapter, tmp_path / "out")
    count = assert_rounded_once(ours, stored(base), adapter, 3.0, dtype, transposed=kind == "gpt2")
    assert count > 0


@pytest.mark.parametrize("wanted", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_another_dtype_is_one_rounding_from_the_file(
    zoo: Zoo, tmp_path: Path, dtype: str, wanted: str
) -> None:
    base, adapter = zoo.pair("llama", "plain", dtype)
    ours, _ = merged(base, adapter, tmp_path / "out", dtype=wanted)
    assert assert_rounded_once(ours, stored(base), adapter, 3.0, wanted) == 14
    config = json.loads((tmp_path / "out" / "config.json").read_bytes())
    assert config["dtype"] == wanted


def test_float32_rounded_at_the_end_is_better_than_at_the_start(zoo: Zoo, tmp_path: Path) -> None:
    """PEFT on a float32 base loaded as bfloat16 rounds twice."""
    import torch

    base, adapter = zoo.pair("llama", "plain", "float32")
    ours, _ = merged(base, adapter, tmp_path / "out", dtype="bfloat16")
    theirs = peft_merged(base, adapter, dtype="bfloat16")
    before = stored(base)
    for name, (a, b) in factors_of(adapter).items():
        exact = before[name].double() + 3 * (b @ a)
        mine, other = (float((t[name].double() - exact).norm()) for t in (ours, theirs))
        assert mine < other, name
        assert not torch.equal(ours[name], theirs[name])


def test_shards_of_another_dtype(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.pair("llama", "plain", "float32", shard="60KB")
    ours, _ = merged(base, adapter, tmp_path / "out", dtype="bfloat16")
    assert_rounded_once(ours, stored(base), adapter, 3.0, "bfloat16")
    read_weights(tmp_path / "out")  # an index, if there is one, agrees with its shards


def test_tensors_of_several_dtypes_in_one_base_keep_theirs(zoo: Zoo, tmp_path: Path) -> None:
    import shutil

    import torch
    from safetensors.torch import save_file

    base, adapter = zoo.pair("llama", "plain")
    mixed = Path(shutil.copytree(base, tmp_path / "mixed"))
    kinds = {"norm": torch.float32, "v_proj": torch.float32, "up_proj": torch.float16}
    tensors = {
        name: tensor.to(next((k for part, k in kinds.items() if part in name), tensor.dtype))
        for name, tensor in stored(base).items()
    }
    save_file(tensors, mixed / "model.safetensors", metadata={"format": "pt"})
    ours, _ = merged(mixed, adapter, tmp_path / "out")
    assert {name: tensor.dtype for name, tensor in ours.items()} == {
        name: tensor.dtype for name, tensor in tensors.items()
    }
    for dtype in DTYPES:
        some = [name for name, tensor in tensors.items() if tensor.dtype == getattr(torch, dtype)]
        part = {name: ours[name] for name in some}
        assert_rounded_once(part, {name: tensors[name] for name in some}, adapter, 3.0, dtype)


def test_dora_against_float64(zoo: Zoo, tmp_path: Path) -> None:
    import torch

    for dtype in DTYPES:
        base, adapter = zoo.pair("llama", "dora", dtype)
        ours, _ = merged(base, adapter, tmp_path / dtype)
        before, tensors = stored(base), stored(adapter)
        half = torch.finfo(getattr(torch, dtype)).eps / 2
        for name, (a, b) in factors_of(adapter).items():
            stem = f"base_model.model.{name.removesuffix('.weight')}"
            magnitude = tensors[f"{stem}.lora_magnitude_vector"].double()
            direction = before[name].double() + 3 * (b @ a)
            exact = (magnitude / direction.norm(dim=1))[:, None] * direction
            bound = (half + 2e-6) * exact.abs() + 2e-7
            assert ((ours[name].double() - exact).abs() <= bound).all(), name


def test_dora_after_another_against_float64(zoo: Zoo, tmp_path: Path) -> None:
    """W ← (m / ‖W₀ + Δ‖)·(W + Δ), W being what the first adapter left and W₀ the base."""
    import torch

    for dtype in DTYPES:
        base = zoo.base("llama", dtype)
        first, dora = zoo.adapter(base, "plain"), zoo.adapter(base, "dora")
        ours, _ = merged(base, [first, dora], tmp_path / dtype)
        before, tensors, target = stored(base), stored(dora), getattr(torch, dtype)
        others = factors_of(first)
        half = torch.finfo(target).eps / 2
        for name, (a, b) in factors_of(dora).items():
            stem = f"base_model.model.{name.removesuffix('.weight')}"
            start, delta = before[name].double(), 3 * (b @ a)
            norm = (start + delta).norm(dim=1)
            factor = (tensors[f"{stem}.lora_magnitude_vector"].double() / norm)[:, None]
            current = start + 3 * (others[name][1] @ others[name][0])
            exact = factor * (current + delta)
            bound = (half + 2e-6) * (exact.abs() + factor.abs() * current.abs()) + 4e-7
            assert ((ours[name].double() - exact).abs() <= bound).all(), name


@pytest.fixture(scope="module")
def pissa(zoo: Zoo, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An adapter that starts from the base's singular values, as saved and converted."""
    import torch
    from peft import LoraConfig, get_peft_model

    root = tmp_path_factory.mktemp("pissa")
    base = zoo.base("llama", "float32")
    torch.manual_seed(29)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = LoraConfig(
            r=4,
            lora_alpha=4,
            task_type="CAUSAL_LM",
            target_modules=["q_proj", "up_proj"],
            init_lora_weights="pissa",
        )
        peft = get_peft_model(load_base(base), config)
        peft.peft_config["default"].init_lora_weights = True
        peft.save_pretrained(root / "start", save_embedding_layers=False)
        peft.peft_config["default"].init_lora_weights = "pissa"
        trained(peft)
        peft.save_pretrained(root / "plain", save_embedding_layers=False)
        peft.save_pretrained(
            root / "converted",
            path_initial_model_for_weight_conversion=str(root / "start"),
            save_embedding_layers=False,
        )
        torch.save(_answers(peft), root / "answers.pt")
        peft.unload().save_pretrained(root / "residual")
    return {name: root / name for name in ("plain", "converted", "residual", "answers.pt")}


def _answers(model: Any) -> Any:
    import torch
    from oracle import questions

    with torch.no_grad():
        return copy.deepcopy(model).eval().double()(**questions("llama")).logits


def test_pissa_over_the_residual_base(pissa: dict[str, Path], tmp_path: Path) -> None:
    import torch

    ours, _ = merged(pissa["residual"], pissa["plain"], tmp_path / "out", base_is_residual=True)
    residual = stored(pissa["residual"])
    assert assert_rounded_once(ours, residual, pissa["plain"], 1.0, "float32") == 4
    wanted = torch.load(pissa["answers.pt"], weights_only=True)
    assert (merged_logits(tmp_path / "out", double=True) - wanted).abs().max() < 2e-6


def test_pissa_that_was_converted(zoo: Zoo, pissa: dict[str, Path], tmp_path: Path) -> None:
    import torch

    base = zoo.base("llama", "float32")
    config = json.loads((pissa["converted"] / "adapter_config.json").read_bytes())
    assert config["r"] == 8
    merged(base, pissa["converted"], tmp_path / "out")
    wanted = torch.load(pissa["answers.pt"], weights_only=True)
    found = merged_logits(tmp_path / "out", double=True)
    assert (found - wanted).abs().max() < 5e-6
    assert (found - adapter_logits(base, pissa["converted"], double=True)).abs().max() < 2e-6


def test_small_steps_of_bfloat16_are_counted(zoo: Zoo, tmp_path: Path) -> None:
    """Elements that did not move are those whose exact sum rounds back to the base."""
    import torch

    base, adapter = zoo.pair("llama", "plain")
    ours, report = merged(base, adapter, tmp_path / "out")
    before = stored(base)
    moved = sum(
        int((ours[name].view(torch.int16) != before[name].view(torch.int16)).sum())
        for name in factors_of(adapter)
    )
    assert report["moved_elements"] == moved
    assert report["changed_elements"] == sum(before[n].numel() for n in factors_of(adapter))
    assert math.isclose(1 - moved / report["changed_elements"], 0.1, abs_tol=0.1)
