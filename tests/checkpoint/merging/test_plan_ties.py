"""Embeddings that are one tensor: the plan says which stay one, which become two, and why."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from our_merge import no_processes
from safetensors.torch import load_file, save_file
from zoo import Zoo

from hubtools.checkpoint.adapter import open_adapter
from hubtools.checkpoint.carry import small_files, with_edits
from hubtools.checkpoint.merging.options import MergeOptions
from hubtools.checkpoint.merging.plan import MergePlan, plan_merge
from hubtools.checkpoint.merging.recipe import LowRank, Output, SetRows
from hubtools.errors import CheckError

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@pytest.fixture(autouse=True)
def here() -> Iterator[None]:
    with no_processes():
        yield


def plan(zoo: Zoo, variant: str, kind: str = "qwen2", **options: Any) -> MergePlan:
    base, adapter = zoo.pair(kind, variant)
    return plan_merge([open_adapter(adapter, base.parent)], base, MergeOptions(**options))


def output(plan: MergePlan, name: str) -> Output:
    return next(output for output in plan.layout.outputs() if output.name == name)


@pytest.mark.parametrize(
    ("variant", "on_head", "on_embedding"),
    [("head", 1, 0), ("embedding", 0, 1), ("embedding and head", 1, 1)],
)
def test_trained_apart_they_become_two(
    zoo: Zoo, variant: str, on_head: int, on_embedding: int
) -> None:
    made = plan(zoo, variant)
    assert made.to_json()["added"] == [HEAD]
    assert made.config_edits == {"tie_word_embeddings": False}
    assert any("--keep-tied" in note for note in made.notes)
    assert len(output(made, HEAD).ops) == on_head
    assert len(output(made, EMBEDDING).ops) == on_embedding
    assert output(made, HEAD).shape == output(made, EMBEDDING).shape


@pytest.mark.parametrize(
    ("variant", "ops"), [("head", 1), ("embedding", 1), ("embedding and head", 2)]
)
def test_kept_tied_the_one_tensor_takes_both(zoo: Zoo, variant: str, ops: int) -> None:
    made = plan(zoo, variant, keep_tied=True)
    assert made.to_json()["added"] == []
    assert made.config_edits == {}
    assert len(output(made, EMBEDDING).ops) == ops


def test_a_matrix_trained_whole_unties_even_when_kept(zoo: Zoo) -> None:
    made = plan(zoo, "save head", keep_tied=True)
    assert made.to_json()["added"] == [HEAD]
    assert output(made, HEAD).source.path.name == "adapter_model.safetensors"
    assert output(made, EMBEDDING).untouched


@pytest.mark.parametrize("variant", ["tied embedding", "save both tied"])
def test_trained_as_one_they_stay_one(zoo: Zoo, variant: str) -> None:
    made = plan(zoo, variant)
    assert made.to_json()["added"] == []
    assert made.config_edits == {}
    assert len(output(made, EMBEDDING).ops) == (1 if variant == "tied embedding" else 0)


def test_token_rows_of_the_input_are_those_of_the_output(zoo: Zoo) -> None:
    made = plan(zoo, "tokens")
    assert made.to_json()["added"] == []
    (op,) = output(made, EMBEDDING).ops
    assert isinstance(op, SetRows)
    assert op.rows == (3, 99, 7)


def test_a_resized_vocabulary_that_was_tied_stays_tied(zoo: Zoo) -> None:
    made = plan(zoo, "resized")
    assert made.to_json()["added"] == []
    assert made.config_edits == {"vocab_size": 136}


def test_two_different_resized_matrices_are_two(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.pair("qwen2", "resized")
    tensors = load_file(adapter / "adapter_model.safetensors")
    tensors[f"base_model.model.{HEAD}"] += 1
    copy = tmp_path / "adapter"
    copy.mkdir()
    save_file(tensors, copy / "adapter_model.safetensors")
    (copy / "adapter_config.json").write_bytes((adapter / "adapter_config.json").read_bytes())
    made = plan_merge([open_adapter(copy, tmp_path)], base)
    assert made.config_edits == {"tie_word_embeddings": False, "vocab_size": 136}


def test_an_untied_base_needs_no_names(zoo: Zoo) -> None:
    made = plan(zoo, "embedding and head", kind="llama")
    assert made.names is None
    assert made.config_edits == {}


def test_both_places_of_a_configuration_follow(zoo: Zoo) -> None:
    made = plan(zoo, "head", kind="gemma3")
    assert made.config_edits == {
        "tie_word_embeddings": False,
        "text_config.tie_word_embeddings": False,
    }
    small = with_edits(small_files([], made.base), made.config_edits)
    config = json.loads(small["config.json"].data)
    assert config["text_config"]["tie_word_embeddings"] is False


def test_an_untouched_tie_is_not_looked_at(zoo: Zoo) -> None:
    made = plan(zoo, "plain")
    assert made.names is None
    assert made.layout.index_bytes is None
    assert all(isinstance(op, LowRank) for o in made.layout.outputs() for op in o.ops)


def test_the_choice_is_offered_only_where_there_is_one(zoo: Zoo) -> None:
    assert not any("--keep-tied" in note for note in plan(zoo, "save both").notes)


@pytest.mark.parametrize(("keep", "on_head", "on_embedding"), [(False, 1, 0), (True, 1, 1)])
def test_a_base_that_stores_both_although_they_are_one(
    zoo: Zoo, tmp_path: Path, keep: bool, on_head: int, on_embedding: int
) -> None:
    original, adapter = zoo.pair("qwen2", "head")
    base = Path(shutil.copytree(original, tmp_path / "base"))
    tensors = load_file(base / "model.safetensors")
    tensors[HEAD] = tensors[EMBEDDING].clone()
    save_file(tensors, base / "model.safetensors", metadata={"format": "pt"})
    made = plan_merge([open_adapter(adapter, tmp_path)], base, MergeOptions(keep_tied=keep))
    assert len(output(made, HEAD).ops) == on_head
    assert len(output(made, EMBEDDING).ops) == on_embedding
    assert made.config_edits == ({} if keep else {"tie_word_embeddings": False})
    assert all(file.like is not None for file in made.layout.files)


def test_a_trainer_that_ties_only_by_known_names_left_these_apart(zoo: Zoo) -> None:
    # PEFT does not know GPT-2's wte as an embedding: its head stays as it was in training.
    made = plan(zoo, "tied embedding", kind="gpt2")
    assert made.to_json()["added"] == [HEAD]
    assert output(made, HEAD).untouched


def test_an_output_matrix_under_its_old_name(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.pair("gemma3", "embedding and head")
    copy = Path(shutil.copytree(adapter, tmp_path / "adapter"))
    file = copy / "adapter_model.safetensors"
    old = {
        name.replace(".model.lm_head", ".model.language_model.lm_head"): tensor
        for name, tensor in load_file(file).items()
    }
    save_file(old, file)
    made = plan_merge([open_adapter(copy, tmp_path)], base)
    assert len(output(made, HEAD).ops) == 1
    assert made.to_json()["added"] == [HEAD]


def test_two_names_of_one_place(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.pair("gemma3", "head")
    copy = Path(shutil.copytree(adapter, tmp_path / "adapter"))
    file = copy / "adapter_model.safetensors"
    twice = {
        spelling: tensor.clone()
        for name, tensor in load_file(file).items()
        for spelling in (name, name.replace(".model.lm_head", ".model.language_model.lm_head"))
    }
    save_file(twice, file)
    with pytest.raises(CheckError, match="HT114") as caught:
        plan_merge([open_adapter(copy, tmp_path)], base)
    assert "two names of one place" in caught.value.detail[0]
