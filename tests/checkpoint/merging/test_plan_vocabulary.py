"""Rows of a vocabulary: resized in part, trained in part, or not those of this base."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from zoo import Zoo

from hubtools.checkpoint.adapter import open_adapter
from hubtools.checkpoint.merging.plan import MergePlan, plan_merge
from hubtools.errors import CheckError

PREFIX = "base_model.model."
EMBEDDING = f"{PREFIX}model.embed_tokens"


def copied(zoo: Zoo, target: Path, variant: str) -> tuple[Path, Path]:
    base, adapter = zoo.pair("llama", variant)
    return base, Path(shutil.copytree(adapter, target / "adapter"))


def edit(adapter: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = adapter / "adapter_model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


def edit_config(adapter: Path, **changes: Any) -> None:
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **changes}))


def plan(base: Path, *adapters: Path) -> MergePlan:
    return plan_merge([open_adapter(adapter, base.parent) for adapter in adapters], base)


def test_only_one_of_two_matrices_was_resized(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = copied(zoo, tmp_path, "resized")
    edit(adapter, lambda tensors: tensors.pop(f"{PREFIX}lm_head.weight"))
    with pytest.raises(CheckError, match="HT140") as caught:
        plan(base, adapter)
    assert "lm_head.weight [131, 64]" in caught.value.detail[0]


@pytest.mark.parametrize("saved", ["embed_tokens", "lm_head"])
def test_factors_for_more_rows_than_the_base_has(zoo: Zoo, tmp_path: Path, saved: str) -> None:
    base, adapter = copied(zoo, tmp_path, "resized embedding")

    def drop(tensors: dict[str, Any]) -> None:
        for name in [name for name in tensors if f"{saved}.base_layer" in name]:
            del tensors[name]

    edit(adapter, drop)
    with pytest.raises(CheckError, match="HT140") as caught:
        plan(base, adapter)
    assert "save_embedding_layers=True" in caught.value.next
    assert "136 rows" in caught.value.message


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([1, 2], "2 token rows"),
        ([1, 2, 131], "outside the 131"),
        ([1, 2, -1], "outside the 131"),
        ([1, 2, 2], "some twice"),
        ("all", "0 token rows"),
        ({"lm_head": [1, 2, 3]}, "0 token rows"),
    ],
)
def test_token_rows_that_do_not_fit(zoo: Zoo, tmp_path: Path, rows: Any, words: str) -> None:
    base, adapter = copied(zoo, tmp_path, "tokens")
    edit_config(adapter, trainable_token_indices=rows)
    with pytest.raises(CheckError, match="HT142") as caught:
        plan(base, adapter)
    assert words in caught.value.message


def test_a_norm_of_another_length_is_another_base(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = copied(zoo, tmp_path, "save norm")
    name = f"{PREFIX}model.norm.weight"
    edit(adapter, lambda tensors: tensors.update({name: tensors[name][:60].clone()}))
    with pytest.raises(CheckError, match="HT113") as caught:
        plan(base, adapter)
    assert "model.norm.weight is [64], the adapter holds it as [60]" in caught.value.message


@pytest.mark.parametrize("map_", [[[0, 3]], [[0]], "0-1", [[0, 1], ["a", 2]], [[1, 1]], [[-1, 1]]])
def test_layers_that_are_not_there(zoo: Zoo, tmp_path: Path, map_: Any) -> None:
    base, adapter = copied(zoo, tmp_path, "plain")
    edit_config(adapter, layer_replication=map_)
    with pytest.raises(CheckError, match="HT141"):
        plan(base, adapter)


def test_replicated_layers_are_copies_with_their_own_deltas(zoo: Zoo) -> None:
    base, adapter = zoo.pair("qwen3", "replicated")
    made = plan(base, adapter)
    outputs = {output.name: output for output in made.layout.outputs()}
    first, third = (outputs[f"model.layers.{i}.self_attn.q_proj.weight"] for i in (0, 2))
    assert first.source == third.source
    assert first.ops != third.ops
    assert outputs["model.layers.3.input_layernorm.weight"].untouched
    assert made.config_edits["num_hidden_layers"] == 4
    assert made.config_edits["layer_types"] == ["full_attention"] * 4


def test_replication_with_another_adapter(zoo: Zoo) -> None:
    base, adapter = zoo.pair("llama", "replicated")
    with pytest.raises(CheckError, match="HT141"):
        plan(base, adapter, zoo.adapter(base, "plain"))


def test_adapters_act_in_the_order_they_are_named(zoo: Zoo) -> None:
    base, first = zoo.pair("llama", "plain")
    second = zoo.adapter(base, "second")

    def ranks(*adapters: Path) -> list[int]:
        outputs = plan(base, *adapters).layout.outputs()
        (ops,) = (o.ops for o in outputs if o.name == "model.layers.0.self_attn.q_proj.weight")
        return [op.rank for op in ops]  # type: ignore[union-attr]

    assert ranks(first, second) == [8, 5]
    assert ranks(second, first) == [5, 8]


def test_a_matrix_trained_whole_later_replaces_what_came_before(zoo: Zoo) -> None:
    base, first = zoo.pair("llama", "head")
    made = plan(base, first, zoo.adapter(base, "save head"))
    (head,) = (o for o in made.layout.outputs() if o.name == "lm_head.weight")
    assert head.ops == ()
    assert "save head" in str(head.source.path)


def test_an_adapter_of_a_quantised_base_says_so(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = copied(zoo, tmp_path, "plain")
    edit_config(adapter, base_model_name_or_path="someone/model-bnb-4bit")
    made = plan(base, adapter)
    assert any("someone/model-bnb-4bit" in note for note in made.notes)
    assert made.to_json()["notes"] == list(made.notes)


def test_a_classifier_names_its_class(zoo: Zoo) -> None:
    base, adapter = zoo.pair("gpt2", "classifier")
    made = plan(base, adapter)
    assert made.config_edits["architectures"] == ["GPT2ForSequenceClassification"]
    assert made.to_json()["added"] == ["score.weight"]
