"""What a NameMap says is what transformers loads: every value of every parameter."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from layouts import LAYOUTS, load_layout, put_together, save_layout
from oracle import load_base, stored
from zoo import KINDS, Zoo

from hubtools.checkpoint.naming.names import NameMap, name_map
from hubtools.checkpoint.naming.names_child import work


@pytest.fixture(autouse=True)
def _ask_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that an earlier test was told is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("hubtools.checkpoint.naming.names._ANSWERED", {})


def names_of(base: Path, *asked: str) -> NameMap:
    """As `name_map`, without the child process."""
    result = work({"base": str(base), "asked": list(asked)}, lambda *_: None)
    return NameMap.from_json(result)


def agree(names: NameMap, base: Path, model: Any) -> None:
    """Parts put together are the loaded values, and nothing is left over."""
    state = model.state_dict()
    whole = put_together(names, stored(base))
    assert whole.keys() == state.keys() - names.tied.keys()
    for name, value in whole.items():
        assert torch.equal(value, state[name].float()), name
    assert names.shapes == {name: tuple(tensor.shape) for name, tensor in state.items()}
    assert names.missing == names.foreign == ()
    assert names.unplaced == {}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_the_zoo(zoo: Zoo, kind: str) -> None:
    base = zoo.base(kind)
    agree(names_of(base), base, load_base(base))


@pytest.mark.parametrize("kind", LAYOUTS)
def test_other_layouts(tmp_path: Path, kind: str) -> None:
    base = save_layout(tmp_path / "base", kind)
    agree(names_of(base), base, load_layout(base))


@pytest.mark.parametrize("kind", ["qwen2_moe", "gpt_oss", "llava", "deepseek_v3"])
def test_without_weights_the_names_are_those_that_would_be_written(
    tmp_path: Path, kind: str
) -> None:
    base = save_layout(tmp_path / "base", kind)
    with_weights = names_of(base)
    (base / "model.safetensors").unlink()
    without = names_of(base)
    assert without.parameters == with_weights.parameters
    assert without.missing == ()


def test_experts_stored_turned_over(tmp_path: Path) -> None:
    """Qwen3-VL-MoE checkpoints keep [experts, in, out]; in memory it is [experts, out, in]."""
    from safetensors.torch import save_file

    base = save_layout(tmp_path / "base", "qwen3_vl_moe")
    turned = {
        name: tensor.transpose(1, 2).contiguous() if ".experts." in name else tensor
        for name, tensor in stored(base).items()
    }
    save_file(turned, base / "model.safetensors", metadata={"format": "pt"})
    names = names_of(base)
    agree(names, base, load_layout(base))
    (part,) = names.parameters["model.language_model.layers.0.mlp.experts.gate_up_proj"]
    assert part.transposed
    assert part.page is None


def test_experts_stored_as_they_lie_in_memory(tmp_path: Path) -> None:
    base = tmp_path / "base"
    model = load_layout(save_layout(tmp_path / "first", "qwen2_moe"))
    model.save_pretrained(base, save_original_format=False)
    asked = "model.layers.1.mlp.experts.2.up_proj.weight"
    names = names_of(base, asked)
    agree(names, base, model)
    parameter = "model.layers.1.mlp.experts.gate_up_proj"
    assert [part.disk for part in names.parameters[parameter]] == [parameter]
    assert names.asked == {asked: parameter}
    assert (names.asked_parts[asked].page, names.asked_parts[asked].rows) == (2, (40, 80))


def test_a_child_process_tells_the_same(zoo: Zoo, tmp_path: Path) -> None:
    base = zoo.base("mixtral")
    asked = ["model.layers.0.block_sparse_moe.experts.1.w2.weight", "lm_head.weight", "x.weight"]
    names = name_map(base, asked, tmp_path / "log")
    assert names == names_of(base, *asked)
    assert "x.weight" not in names.asked


def test_an_unchanged_base_is_asked_once(zoo: Zoo, tmp_path: Path) -> None:
    base = Path(shutil.copytree(zoo.base("llama"), tmp_path / "base"))
    names = name_map(base, ["lm_head.weight"], tmp_path / "first")
    assert name_map(base, ["lm_head.weight"], tmp_path / "second") == names
    assert not (tmp_path / "second").exists()
    config = json.loads((base / "config.json").read_bytes())
    (base / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    assert len(name_map(base, ["lm_head.weight"], tmp_path / "third").shapes) < len(names.shapes)


def test_what_is_missing_and_what_is_foreign(zoo: Zoo, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    tensors = stored(zoo.base("mixtral"))
    lost = "model.layers.1.block_sparse_moe.experts.2.w1.weight"
    del tensors[lost], tensors["model.norm.weight"]
    tensors["visitor.weight"] = torch.zeros(2)
    (tmp_path / "config.json").write_bytes((zoo.base("mixtral") / "config.json").read_bytes())
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    names = names_of(tmp_path)
    assert names.missing == ("model.norm.weight",)
    assert names.foreign == ("visitor.weight",)
    assert list(names.unplaced) == ["model.layers.1.mlp.experts.gate_up_proj"]


# What an adapter calls a module → what the module is called in memory.
OLD_AND_NEW = {
    "qwen2_5_vl": {
        "model.layers.1.mlp.up_proj": "model.language_model.layers.1.mlp.up_proj",
        "model.language_model.layers.1.mlp.up_proj": "model.language_model.layers.1.mlp.up_proj",
        "visual.blocks.0.attn.qkv": "model.visual.blocks.0.attn.qkv",
        "lm_head": "lm_head",
    },
    "gemma3": {
        "language_model.model.layers.0.mlp.up_proj": "model.language_model.layers.0.mlp.up_proj",
        "model.vision_tower.post_layernorm": "model.vision_tower.post_layernorm",
        "vision_tower.vision_model.post_layernorm": "model.vision_tower.post_layernorm",
    },
    "mixtral": {
        "model.layers.0.block_sparse_moe.gate": "model.layers.0.mlp.gate",
        "model.layers.0.mlp.gate": "model.layers.0.mlp.gate",
        "model.layers.0.block_sparse_moe.experts": "model.layers.0.mlp.experts",
        "model.layers.0.mlp.experts": "model.layers.0.mlp.experts",
    },
}


@pytest.mark.parametrize("kind", OLD_AND_NEW)
def test_names_of_every_age_lead_to_one_place(zoo: Zoo, kind: str) -> None:
    wanted = {f"{old}.weight": f"{new}.weight" for old, new in OLD_AND_NEW[kind].items()}
    names = names_of(zoo.base(kind), *wanted, "model.layers.99.mlp.up_proj.weight")
    assert names.asked == wanted
    assert names.asked_parts == {}


@pytest.mark.parametrize("kind", LAYOUTS)
def test_every_name_of_today_leads_to_itself(tmp_path: Path, kind: str) -> None:
    """In memory, and on disk to the parameter it fills; a tensor cut in several has no one home."""
    base = save_layout(tmp_path / "base", kind)
    told = names_of(base)
    homes: dict[str, list[str]] = {}
    for name, parts in told.parameters.items():
        for part in parts:
            homes.setdefault(part.disk, []).append(name)
    names = names_of(base, *told.shapes, *homes)
    assert {name: names.asked[name] for name in told.shapes} == {n: n for n in told.shapes}
    one = {disk: found[0] for disk, found in homes.items() if len(found) == 1}
    assert {name: names.asked[name] for name in one} == one
    assert names.asked.keys() == told.shapes.keys() | one.keys()


def test_what_peft_takes_modules_for(zoo: Zoo, tmp_path: Path) -> None:
    modules = names_of(zoo.base("gpt2")).modules
    assert modules["transformer.h.0.attn.c_attn"] == "Conv1D"
    assert modules["transformer.wte"] == "Embedding"
    modules = names_of(zoo.base("gemma3")).modules
    assert modules["model.language_model.embed_tokens"] == "Embedding"  # a subclass that scales
    names = names_of(save_layout(tmp_path / "base", "gpt_oss"))
    assert "model.layers.0.mlp.experts" in names.in_out
    assert names.modules["model.layers.0.mlp.experts"] == "GptOssExperts"


def test_tied_tensors(zoo: Zoo) -> None:
    assert names_of(zoo.base("gpt2")).tied == {"lm_head.weight": "transformer.wte.weight"}
    assert names_of(zoo.base("llama")).tied == {}
