"""Two dozen further architectures, and layouts that the Hub has though no one writes them now."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from families import FAMILIES, make_family
from oracle import assert_same_bytes, peft_merged, stored
from our_merge import merged, no_processes
from zoo import Zoo
from zoo_adapters import trained


@pytest.fixture(scope="module", autouse=True)
def _here() -> Any:
    with no_processes():
        yield


@pytest.mark.parametrize("kind", FAMILIES)
def test_all_linear_layers_of(tmp_path: Path, kind: str) -> None:
    base, adapter, theirs = make_family(tmp_path, kind)
    ours, report = merged(base, adapter, tmp_path / "out")
    assert_same_bytes(ours, theirs)
    before = stored(base)
    assert report["changed_tensors"] >= len([n for n in ours if not equal(ours[n], before[n])]) > 3


def equal(left: Any, right: Any) -> bool:
    return bool((left == right).all())


def rewritten(base: Path, to: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Path:
    """A copy of a base with other tensors."""
    from safetensors.torch import save_file

    shutil.copytree(base, to)
    save_file(change(stored(base)), to / "model.safetensors", metadata={"format": "pt"})
    return to


@pytest.mark.parametrize("variant", ["plain", "dora", "bias all", "save both", "tokens"])
def test_names_without_the_prefix_of_the_model(zoo: Zoo, tmp_path: Path, variant: str) -> None:
    """GPT-2 on the Hub: `h.0.…` for `transformer.h.0.…`, and masks that are no parameters."""
    import torch

    base, adapter = zoo.pair("gpt2", variant)
    mask = torch.tril(torch.ones(1, 1, 128, 128, dtype=torch.uint8))

    def short(name: str) -> str:
        return name.removeprefix("transformer.")

    def as_on_the_hub(tensors: dict[str, Any]) -> dict[str, Any]:
        return {**{short(n): t for n, t in tensors.items()}, "h.0.attn.bias": mask}

    hub = rewritten(base, tmp_path / "hub", as_on_the_hub)
    ours, _ = merged(hub, adapter, tmp_path / "out")
    theirs = {short(name): tensor for name, tensor in peft_merged(base, adapter).items()}
    assert_same_bytes(ours, {**theirs, "h.0.attn.bias": mask})


@pytest.mark.parametrize("headless", [False, True])
def test_an_adapter_of_the_body_alone(zoo: Zoo, tmp_path: Path, headless: bool) -> None:
    """Embedding models are trained without a head: `layers.0.…`, whatever the base calls it."""
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModel

    base, adapter = zoo.base("qwen3"), tmp_path / "adapter"
    config = LoraConfig(r=4, target_modules=["q_proj"], task_type="FEATURE_EXTRACTION")
    peft = get_peft_model(AutoModel.from_pretrained(base), config)
    trained(peft)
    peft.save_pretrained(adapter)
    if headless:
        AutoModel.from_pretrained(base).save_pretrained(tmp_path / "base")
        base = tmp_path / "base"
    ours, _ = merged(base, adapter, tmp_path / "out")
    loaded = PeftModel.from_pretrained(AutoModel.from_pretrained(base), adapter)
    theirs = loaded.merge_and_unload().state_dict()
    prefix = "" if headless else "model."
    assert_same_bytes({n: ours[prefix + n] for n in theirs}, theirs)
    assert ours.keys() == stored(base).keys()


@pytest.mark.parametrize(
    ("kind", "variant"), [("qwen3_moe", "gate_up and down"), ("llama", "plain")]
)
def test_tensors_that_the_model_does_not_know_stay(
    zoo: Zoo, tmp_path: Path, kind: str, variant: str
) -> None:
    """Layers for predicting several tokens, scales, masks: copied byte for byte."""
    import torch

    base, adapter = zoo.pair(kind, variant)
    more = {
        "mtp.layers.0.self_attn.q_proj.weight": torch.randn(8, 8).bfloat16(),
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.randn(8),
        "model.layers.0.mlp.scale": torch.tensor(3, dtype=torch.int64),
        "model.layers.9.self_attn.q_proj.weight": torch.randn(64, 64).bfloat16(),
    }
    with_more = rewritten(base, tmp_path / "base", lambda tensors: {**tensors, **more})
    ours, _ = merged(with_more, adapter, tmp_path / "out")
    assert_same_bytes(ours, {**peft_merged(base, adapter), **more})
