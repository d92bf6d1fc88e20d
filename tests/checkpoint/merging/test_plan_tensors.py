"""Adapter tensors are known by their names, however their writer spelt them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from our_merge import no_processes
from safetensors.torch import load_file, save_file
from zoo import Zoo

from hubtools.checkpoint.adapter import open_adapter
from hubtools.checkpoint.merging.plan import MergePlan, plan_merge
from hubtools.checkpoint.merging.tensors import plain_name, read_tensors
from hubtools.errors import CheckError

Rename = Callable[[str], str]


def renamed(zoo: Zoo, target: Path, variant: str, rename: Rename) -> tuple[Path, Path]:
    """(base, a copy of the adapter with other names)."""
    base, adapter = zoo.pair("llama", variant)
    shutil.copytree(adapter, target)
    file = target / "adapter_model.safetensors"
    save_file({rename(name): tensor for name, tensor in load_file(file).items()}, file)
    return base, target


def recipes(plan: MergePlan) -> dict[str, Any]:
    """Output name → what is done to it, without file offsets."""
    return {
        output.name: [type(op).__name__ for op in output.ops]
        for output in plan.layout.outputs()
        if output.kind
    }


def planned(base: Path, adapter: Path, scratch: Path) -> MergePlan:
    return plan_merge([open_adapter(adapter, scratch)], base)


SPELLINGS: dict[str, Rename] = {
    "no prefix": lambda name: name.removeprefix("base_model.model."),
    "doubled prefix": lambda name: f"base_model.model.{name}",
    "adapter name": lambda name: (
        name.replace(".lora_A.", ".lora_A.mine.")
        .replace(".lora_B.", ".lora_B.mine.")
        .replace("magnitude_vector", "magnitude_vector.mine")
        .replace("_embedding_A", "_embedding_A.mine")
        .replace("_embedding_B", "_embedding_B.mine")
        .replace("tokens_delta", "tokens_delta.mine")
    ),
    "doubled adapter name": lambda name: name.replace(".lora_A.", ".lora_A.default.default."),
    "old DoRA": lambda name: name.replace("magnitude_vector", "magnitude_vector.weight"),
    "FSDP": lambda name: name.replace("layers.0.", "layers.0._fsdp_wrapped_module."),
    "compiled": lambda name: f"_orig_mod.{name}",
    "data parallel": lambda name: f"module.{name}",
}


@pytest.mark.parametrize("variant", ["dora", "embedding", "tokens"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_known_spellings_mean_the_same(
    zoo: Zoo, tmp_path: Path, spelling: str, variant: str
) -> None:
    base, adapter = renamed(zoo, tmp_path / "adapter", variant, SPELLINGS[spelling])
    plain = planned(*zoo.pair("llama", variant), tmp_path)
    assert recipes(planned(base, adapter, tmp_path)) == recipes(plain)


@pytest.mark.parametrize(
    "spelling",
    ["{module}.modules_to_save.{leaf}", "{module}.modules_to_save.default.{leaf}"],
)
def test_whole_tensors_of_other_writers(zoo: Zoo, tmp_path: Path, spelling: str) -> None:
    def rename(name: str) -> str:
        module, _, leaf = name.rpartition(".")
        return spelling.format(module=module, leaf=leaf) if "lm_head" in name else name

    base, adapter = renamed(zoo, tmp_path / "adapter", "save head", rename)
    assert "lm_head.weight" in planned(base, adapter, tmp_path).to_json()["replaced"]


def test_copies_that_save_embedding_layers_leaves(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = renamed(zoo, tmp_path / "adapter", "save head", lambda name: name)
    file = adapter / "adapter_model.safetensors"
    tensors = load_file(file)
    head = tensors["base_model.model.lm_head.weight"]
    tensors["base_model.model.lm_head.modules_to_save.weight"] = head.clone()
    tensors["base_model.model.lm_head.original_module.weight"] = head * 0
    save_file(tensors, file)
    (output,) = [
        output
        for output in planned(base, adapter, tmp_path).layout.outputs()
        if output.name == "lm_head.weight"
    ]
    assert output.source.entry.name == "base_model.model.lm_head.weight"


def test_what_training_kept_for_itself_is_ignored(zoo: Zoo, tmp_path: Path) -> None:
    import torch

    base, adapter = renamed(zoo, tmp_path / "adapter", "plain", lambda name: name)
    file = adapter / "adapter_model.safetensors"
    state = "base_model.model.model.layers.0.self_attn.q_proj.lora_monteclora_sampler.x"
    save_file({**load_file(file), state: torch.ones(2)}, file)
    found = read_tensors(open_adapter(adapter, tmp_path))
    assert found.ignored == (state,)
    assert recipes(planned(base, adapter, tmp_path))


def test_one_tensor_under_two_spellings(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = renamed(zoo, tmp_path / "adapter", "save head", lambda name: name)
    file = adapter / "adapter_model.safetensors"
    tensors = load_file(file)
    tensors["lm_head.weight"] = tensors["base_model.model.lm_head.weight"].clone()
    save_file(tensors, file)
    with pytest.raises(CheckError, match="HT114") as caught:
        planned(base, adapter, tmp_path)
    assert "two of lm_head.weight" in caught.value.detail[0]


def test_prefixes_are_cut_only_at_the_front() -> None:
    assert plain_name("base_model.model.model.layers.0.x") == "model.layers.0.x"
    assert plain_name("model.base_model.model.x") == "model.base_model.model.x"


@pytest.mark.parametrize(("kind", "inner"), [("llama", "model."), ("gpt2", "transformer.")])
def test_adapters_of_the_model_without_its_head(
    zoo: Zoo, tmp_path: Path, kind: str, inner: str
) -> None:
    base, adapter = zoo.pair(kind, "plain")
    copy = Path(shutil.copytree(adapter, tmp_path / "adapter"))
    file = copy / "adapter_model.safetensors"
    tensors = {name.replace(f".model.{inner}", ".model."): t for name, t in load_file(file).items()}
    save_file(tensors, file)
    with no_processes():
        found = recipes(planned(base, copy, tmp_path))
        assert found == recipes(planned(base, adapter, tmp_path))
