"""A merged model answers as the adapter did: ties, resized vocabularies, pictures, more layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from oracle import adapter_logits, assert_same_bytes, merged_logits, peft_merged, stored
from our_merge import merged, no_processes
from zoo import DTYPES, KINDS, VISUAL, Zoo

TIED = ("qwen2", "gpt2", "gemma3", "gemma3_text")
NEAR = 2e-6  # the largest logit is about 1, weights are rounded to float32


@pytest.fixture(scope="module", autouse=True)
def _here() -> Any:
    with no_processes():
        yield


def assert_faithful(base: Path, adapter: Path, out: Path, **options: Any) -> dict[str, Any]:
    """Merge; the answers are the adapter's, and not the base's."""
    ours, _ = merged(base, adapter, out, **options)
    wanted = adapter_logits(base, adapter, double=True)
    found = merged_logits(out, double=True)
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() < NEAR
    if found.shape == (before := merged_logits(base, double=True)).shape:
        assert (before - wanted).abs().max() > 1e-3
    return ours


@pytest.mark.parametrize("variant", ["plain", "dora", "bias all", "save both", "tokens", "resized"])
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_adapter(
    zoo: Zoo, tmp_path: Path, kind: str, variant: str
) -> None:
    base, adapter = zoo.pair(kind, variant, "float32")
    assert_faithful(base, adapter, tmp_path / "out")


@pytest.mark.parametrize("variant", ["embedding", "head", "embedding and head"])
@pytest.mark.parametrize("kind", TIED)
def test_a_tie_is_cut_where_one_side_was_trained(
    zoo: Zoo, tmp_path: Path, kind: str, variant: str
) -> None:
    base, adapter = zoo.pair(kind, variant, "float32")
    out = tmp_path / "out"
    ours = assert_faithful(base, adapter, out)
    assert len(ours) == len(stored(base)) + 1
    config = json.loads((out / "config.json").read_bytes())
    assert config["tie_word_embeddings"] is False
    assert config.get("text_config", {}).get("tie_word_embeddings", False) is False


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("variant", ["embedding", "head", "embedding and head"])
@pytest.mark.parametrize("kind", TIED)
def test_or_kept_as_peft_keeps_it(
    zoo: Zoo, tmp_path: Path, kind: str, variant: str, dtype: str
) -> None:
    base, adapter = zoo.pair(kind, variant, dtype)
    ours, _ = merged(base, adapter, tmp_path / "out", keep_tied=True)
    assert_same_bytes(ours, peft_merged(base, adapter))
    assert (tmp_path / "out" / "config.json").read_bytes() == (base / "config.json").read_bytes()


@pytest.mark.parametrize("variant", ["tied embedding", "save both tied"])
@pytest.mark.parametrize("kind", ["qwen2", "gemma3", "gemma3_text"])
def test_weights_that_were_trained_as_one_stay_one(
    zoo: Zoo, tmp_path: Path, kind: str, variant: str
) -> None:
    base, adapter = zoo.pair(kind, variant, "float32")
    ours = assert_faithful(base, adapter, tmp_path / "out")
    assert ours.keys() == stored(base).keys()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["qwen2", "gemma3", "gemma3_text"])
def test_saved_as_one_gives_the_bytes_of_peft(
    zoo: Zoo, tmp_path: Path, kind: str, dtype: str
) -> None:
    base, adapter = zoo.pair(kind, "save both tied", dtype)
    ours, _ = merged(base, adapter, tmp_path / "out")
    assert_same_bytes(ours, peft_merged(base, adapter))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["qwen2", "gemma3", "gemma3_text"])
def test_factors_that_are_shared_are_added_once(
    zoo: Zoo, tmp_path: Path, kind: str, dtype: str
) -> None:
    """PEFT adds them once for each of the two modules: its result is W + 2·s·B·A."""
    import torch

    base, adapter = zoo.pair(kind, "tied embedding", dtype)
    ours, _ = merged(base, adapter, tmp_path / "out")
    (name,) = [name for name in ours if name.endswith("embed_tokens.weight")]
    a, b = (
        next(t for n, t in stored(adapter).items() if n.endswith(f"lora_embedding_{side}"))
        for side in "AB"
    )
    weight = stored(base)[name]
    delta = ((b @ a).T * 3).to(weight.dtype)
    assert torch.equal(ours[name], weight + delta)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "mixtral", "gemma3_text"])
def test_replicated_layers_become_layers(zoo: Zoo, tmp_path: Path, kind: str) -> None:
    base, adapter = zoo.pair(kind, "replicated", "float32")
    ours, _ = merged(base, adapter, tmp_path / "out")
    wanted = adapter_logits(base, adapter, double=True)
    assert (merged_logits(tmp_path / "out", double=True) - wanted).abs().max() < NEAR
    config = json.loads((tmp_path / "out" / "config.json").read_bytes())
    assert config["num_hidden_layers"] == 4
    assert "model.layers.3.self_attn.q_proj.weight" in ours


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma3_text"])
def test_a_classification_head_replaces_the_output_matrix(
    zoo: Zoo, tmp_path: Path, kind: str
) -> None:
    base, adapter = zoo.pair(kind, "classifier", "float32")
    out = tmp_path / "out"
    ours, _ = merged(base, adapter, out)
    theirs = peft_merged(base, adapter)
    assert_same_bytes({name: ours[name] for name in theirs}, theirs)
    wanted = adapter_logits(base, adapter, double=True)
    assert wanted.shape[-1] == 3
    assert (merged_logits(out, double=True) - wanted).abs().max() < NEAR


@pytest.mark.parametrize("kind", VISUAL)
def test_names_of_both_generations_give_one_result(zoo: Zoo, tmp_path: Path, kind: str) -> None:
    base = zoo.base(kind, "float32")
    new, _ = merged(base, zoo.adapter(base, "plain"), tmp_path / "new")
    old, _ = merged(base, zoo.adapter(base, "old names"), tmp_path / "old")
    assert_same_bytes(old, new)
    wanted = adapter_logits(base, zoo.adapter(base, "plain"), double=True)
    assert (merged_logits(tmp_path / "old", double=True) - wanted).abs().max() < NEAR
