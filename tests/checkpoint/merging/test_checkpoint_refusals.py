"""What has no place in this base is refused by name, before a byte is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_models import save_adapter, save_base

from hubtools.checkpoint.adapter import open_adapter
from hubtools.checkpoint.merging.merge import merge
from hubtools.checkpoint.merging.plan import MergePlan, plan_merge
from hubtools.errors import CheckError, HubtoolsError

Pair = tuple[Path, Path]


def plan(adapter: Path, base: Path) -> MergePlan:
    return plan_merge([open_adapter(adapter, base.parent)], base)


def refusal(pair: Pair, id: str) -> HubtoolsError:
    base, adapter = pair
    with pytest.raises(CheckError) as caught:
        plan(adapter, base)
    assert caught.value.id == id, caught.value
    assert caught.value.next
    assert caught.value.where
    return caught.value


def edit_config(folder: Path, name: str = "adapter_config.json", **changes: Any) -> None:
    file = folder / name
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **changes}))


def edit_tensors(adapter: Path, change: Callable[[dict[str, Any]], None]) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(adapter / "adapter_model.safetensors")
    change(tensors)
    save_file(tensors, adapter / "adapter_model.safetensors")


LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FIRST = "base_model.model.model.layers.0.self_attn.q_proj"

OPTIONS = [
    ({"peft_type": None}, "HT110", "no peft_type"),
    ({"peft_type": "IA3"}, "HT150", "IA3"),
    ({"use_bdlora": {"x": 1}}, "HT150", "BD-LoRA"),
    ({"init_lora_weights": "pissa"}, "HT110", "PiSSA"),
    ({"init_lora_weights": "olora"}, "HT110", "OLoRA"),
    ({"init_lora_weights": "loftq"}, "HT110", "LoftQ"),
    ({"a_later_invention": 1, "peft_version": "0.22.0"}, "HT110", "option a_later_invention"),
    ({"r": 0}, "HT110", "rank 0"),
    ({"r": "8"}, "HT110", "not a number"),
    ({"alpha_pattern": {"(": 1}}, "HT110", "'(' is no regular expression"),
    ({"rank_pattern": [1]}, "HT110", "not a number"),
]


@pytest.mark.parametrize(("changes", "id", "words"), OPTIONS)
def test_options_of_the_adapter(broken: Pair, changes: dict[str, Any], id: str, words: str) -> None:
    edit_config(broken[1], **changes)
    assert words in refusal(broken, id).message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"use_dora": True}, "down_proj has no magnitude, despite use_dora"),
        ({"lora_bias": True}, "down_proj has no bias, despite lora_bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save names lm_head"),
        ({"modules_to_save": ["norm"]}, "modules_to_save names norm"),
        ({"target_modules": [*LINEAR, "embed_tokens"]}, "target_modules names embed_tokens"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"),
    ],
)
def test_what_was_trained_and_lost_on_the_way(
    broken: Pair, changes: dict[str, Any], words: str
) -> None:
    edit_config(broken[1], **changes)
    assert words in refusal(broken, "HT114").detail[0]


def test_heads_of_other_models_may_be_named(broken: Pair) -> None:
    edit_config(broken[1], modules_to_save=["classifier", "score"])
    base, adapter = broken
    assert plan(adapter, base).to_json()["changed_tensors"] == 14


def test_pissa_as_peft_saves_it(made: Any, tmp_path: Path) -> None:
    base, _ = made("llama", "float32")
    adapter = save_adapter(tmp_path / "adapter", base, ["q_proj"], init_lora_weights="pissa")
    assert "PiSSA" in refusal((base, adapter), "HT110").message


@pytest.mark.parametrize("suffix", ["lora_magnitude_vector", "lora_B.bias"])
def test_parts_that_the_configuration_does_not_announce(broken: Pair, suffix: str) -> None:
    import torch

    edit_tensors(broken[1], lambda t: t.update({f"{FIRST}.{suffix}": torch.ones(64)}))
    assert f"{FIRST}.{suffix}" in refusal(broken, "HT111").message


def test_a_tensor_of_another_type(broken: Pair) -> None:
    import torch

    edit_tensors(broken[1], lambda t: t.update({f"{FIRST}.lora_diag": torch.ones(8)}))
    assert "lora_diag" in refusal(broken, "HT111").message


def test_a_bias_for_a_layer_without_one(broken: Pair) -> None:
    import torch

    def add(tensors: dict[str, Any]) -> None:
        for name in [name for name in tensors if name.endswith("lora_B.weight")]:
            tensors[name.replace("weight", "bias")] = torch.ones(len(tensors[name]))

    edit_config(broken[1], lora_bias=True)
    edit_tensors(broken[1], add)
    assert "trained with lora_bias" in refusal(broken, "HT143").message


def test_half_an_adapter(broken: Pair) -> None:
    edit_tensors(broken[1], lambda t: t.pop(f"{FIRST}.lora_B.weight"))
    assert "q_proj has lora_A alone" in refusal(broken, "HT114").detail[0]


def test_parameters_that_were_not_gathered(broken: Pair) -> None:
    import torch

    edit_tensors(broken[1], lambda t: t.update({f"{FIRST}.lora_A.weight": torch.zeros(0)}))
    assert "F32 [0]" in refusal(broken, "HT114").detail[0]


def test_no_tensors_at_all(broken: Pair) -> None:
    edit_tensors(broken[1], lambda t: t.clear())
    refusal(broken, "HT114")


def test_two_spellings_of_one_factor(broken: Pair) -> None:
    import torch

    more = {f"{FIRST}.lora_A.default.weight": torch.ones(8, 64)}
    edit_tensors(broken[1], lambda t: t.update(more))
    assert "two lora_A" in refusal(broken, "HT114").detail[0]


def test_rank_against_the_configuration(broken: Pair) -> None:
    edit_config(broken[1], r=16)
    assert "rank 16 by adapter_config.json, lora_A [8, 107]" in refusal(broken, "HT114").detail[0]


def test_alpha_zero_would_change_nothing(broken: Pair) -> None:
    edit_config(broken[1], lora_alpha=0)
    refusal(broken, "HT116")


def test_another_architecture_is_named(made: Any) -> None:
    error = refusal((made("gpt_neox")[0], made("llama")[1]), "HT112")
    assert error.message == (
        "14 of 14 adapter modules have no place in this base (GPTNeoXForCausalLM)"
    )
    assert "model.layers.0.mlp.down_proj.weight" in error.detail[0]
    assert "adapter_config.json names as base" in error.detail[1]


def test_one_tensor_without_a_place(broken: Pair) -> None:
    def rename(tensors: dict[str, Any]) -> None:
        for side in "AB":
            moved = tensors.pop(f"{FIRST}.lora_{side}.weight")
            tensors[f"base_model.model.language_model.x_proj.lora_{side}.weight"] = moved

    edit_tensors(broken[1], rename)
    assert "1 of 14" in refusal(broken, "HT112").message


def test_same_names_other_sizes(made: Any, tmp_path: Path) -> None:
    import torch
    from tiny_models import config_of
    from transformers import AutoModelForCausalLM

    config = config_of("llama")
    config.intermediate_size = 96
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(tmp_path)
    error = refusal((tmp_path, made()[1]), "HT113")
    assert error.message == (
        "wrong base: model.layers.0.mlp.down_proj.weight is [64, 96], "
        "the adapter was trained on [64, 107]"
    )


def test_a_quantised_base_is_the_users_choice(broken: Pair) -> None:
    edit_config(broken[0], "config.json", quantization_config={"quant_method": "bitsandbytes"})
    error = refusal(broken, "HT115")
    assert "16-bit model" in error.next
    assert any("unmerged" in line for line in error.detail)


def test_a_base_in_eight_bits(broken: Pair) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    file = broken[0] / "model.safetensors"
    tensors = load_file(file)
    name = "model.layers.0.self_attn.q_proj.weight"
    tensors[name] = tensors[name].to(torch.float8_e4m3fn)
    save_file(tensors, file)
    assert refusal(broken, "HT115").message == f"{name} is stored as F8_E4M3"


def test_swapped_arguments(broken: Pair) -> None:
    base, adapter = broken
    assert "not an adapter" in refusal((adapter, base), "HT112").message
    assert "itself an adapter" in refusal((adapter, adapter), "HT115").message


def test_an_index_that_points_elsewhere(broken: Pair) -> None:
    base, _ = broken
    (base / "model.safetensors").rename(base.parent / "model.safetensors")
    outside = {"weight_map": {"a": "../model.safetensors"}}
    (base / "model.safetensors.index.json").write_text(json.dumps(outside))
    assert "'../model.safetensors'" in refusal(broken, "HT105").detail[0]


def test_an_index_that_forgets_a_tensor(tmp_path: Path, made: Any) -> None:
    base = save_base(tmp_path / "base", "llama", "bfloat16", max_shard_size="60KB")
    file = base / "model.safetensors.index.json"
    index = json.loads(file.read_bytes())
    shard = index["weight_map"].pop("model.norm.weight")
    file.write_text(json.dumps(index))
    assert f"model.norm.weight in {shard}" in refusal((base, made()[1]), "HT105").detail[0]
    (base / shard).unlink()
    assert f"{shard} is missing" in refusal((base, made()[1]), "HT105").detail[0]


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(10**400), 10**400) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_configuration_gives_a_traceback(broken: Pair, data: Any) -> None:
    base, adapter = broken
    folder, name = data.draw(
        st.sampled_from([(adapter, "adapter_config.json"), (base, "config.json")])
    )
    original = (folder / name).read_bytes()
    key = data.draw(st.sampled_from(sorted(json.loads(original))))
    edit_config(folder, name, **{key: data.draw(json_values)})
    with suppress(CheckError):  # refused or planned; anything else fails the test
        plan(adapter, base)
    (folder / name).write_bytes(original)


@pytest.mark.parametrize(("value", "id"), [(0.0, "HT116"), (float("nan"), "HT117")])
def test_values_that_spoil_the_result(broken: Pair, tmp_path: Path, value: float, id: str) -> None:
    def spoil(tensors: dict[str, Any]) -> None:
        for name, tensor in tensors.items():
            if "lora_B" in name:
                tensor.fill_(value)

    base, adapter = broken
    edit_tensors(adapter, spoil)
    with pytest.raises(CheckError, match=id):
        merge(adapter, base, tmp_path / "out", log=tmp_path / "log")
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        ".out.merge",
        "adapter",
        "base",
        "log",
    ]
    assert sorted(file.name for file in (tmp_path / ".out.merge").iterdir()) == ["lock"]


@pytest.mark.parametrize("name", ["x" * 5000, "~nobody-here/m", "a\0b"])
def test_a_base_that_is_no_name_of_a_file(broken: tuple[Path, Path], name: str) -> None:
    base, adapter = broken
    config = json.loads((adapter / "adapter_config.json").read_bytes())
    config["base_model_name_or_path"] = name
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    assert plan(adapter, base).notes == ()
