"""Dense layers, biases, embeddings, whole modules and token rows: PEFT's bytes, in every dtype."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from oracle import assert_same_bytes, peft_config, peft_merged, stored
from our_merge import merged, no_processes
from zoo import DTYPES, KINDS, Zoo

from hubtools.checkpoint.shards import Weights, read_weights

UNTIED = ("llama", "qwen3", "mixtral", "qwen3_moe", "qwen2_5_vl")
BIASED = ("qwen2", "gpt2", "qwen2_5_vl")
# Arithmetic class → kinds it is tried on.
APPLIES: dict[str, tuple[str, ...]] = {
    "plain": KINDS,
    "rslora patterns": KINDS,
    "dora": KINDS,
    "lora bias": BIASED,
    "bias lora_only": (*BIASED, "gemma3"),
    "bias all": (*BIASED, "gemma3"),
    "embedding": UNTIED,
    "head": UNTIED,
    "embedding and head": UNTIED,
    "save head": KINDS,
    "save embedding": KINDS,
    "save both": KINDS,
    "save norm": ("llama", "qwen3", "gemma3_text"),
    "tokens": KINDS,
    "tokens by name": KINDS,
    "resized": UNTIED,
    "resized embedding": UNTIED,
}
CASES = [
    pytest.param(kind, variant, dtype, id=f"{kind} {variant} {dtype}")
    for variant, kinds in APPLIES.items()
    for kind in kinds
    for dtype in DTYPES
]


@pytest.fixture(scope="module", autouse=True)
def _here() -> Any:
    with no_processes():
        yield


@pytest.mark.parametrize(("kind", "variant", "dtype"), CASES)
def test_bytes_are_those_of_peft(
    zoo: Zoo, tmp_path: Path, kind: str, variant: str, dtype: str
) -> None:
    base, adapter = zoo.pair(kind, variant, dtype)
    ours, report = merged(base, adapter, tmp_path / "out")
    assert_same_bytes(ours, peft_merged(base, adapter))
    assert report["changed_tensors"] > 0


@pytest.mark.parametrize(
    "variant",
    ["rslora", "patterns", "some layers", "gaussian", "orthogonal", "rank 1", "rank 48",
     "dora rslora", "bin", "nested", "bfloat16", "float16"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_the_same_arithmetic_under_other_options(
    zoo: Zoo, tmp_path: Path, kind: str, variant: str
) -> None:
    base, adapter = zoo.pair(kind, variant)
    ours, _ = merged(base, adapter, tmp_path / "out")
    assert_same_bytes(ours, peft_merged(base, adapter))


# DoRA after another adapter is not here: PEFT takes the other out and in again, rounding each time.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen2", "gemma3"])
@pytest.mark.parametrize(
    "variants",
    [("plain", "second"), ("second", "plain", "rslora"), ("dora", "second")],
    ids=" then ".join,
)
def test_adapters_in_turn_round_one_after_the_other(
    zoo: Zoo, tmp_path: Path, kind: str, dtype: str, variants: tuple[str, ...]
) -> None:
    base = zoo.base(kind, dtype)
    adapters = [zoo.adapter(base, variant) for variant in variants]
    ours, _ = merged(base, adapters, tmp_path / "out")
    assert_same_bytes(ours, peft_merged(base, *adapters))


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_adapters_is_kept(zoo: Zoo, tmp_path: Path, kind: str) -> None:
    base = zoo.base(kind)
    pair = [zoo.adapter(base, variant) for variant in ("plain", "second")]
    ours, _ = merged(base, pair, tmp_path / "out")
    back, _ = merged(base, pair[::-1], tmp_path / "back")
    assert_same_bytes(ours, peft_merged(base, *pair))
    assert_same_bytes(back, peft_merged(base, *pair[::-1]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", ["plain", "save both", "resized", "dora"])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma3"])
def test_shards(zoo: Zoo, tmp_path: Path, kind: str, variant: str, dtype: str) -> None:
    base, adapter = zoo.pair(kind, variant, dtype, shard="60KB")
    out = tmp_path / "out"
    ours, _ = merged(base, adapter, out)
    assert_same_bytes(ours, peft_merged(base, adapter))
    found = read_weights(out)  # index and shards agree
    if found.index is not None:
        assert found.index["metadata"]["total_size"] == sum(t.nbytes for t in ours.values())
    before = stored(base)
    if {name: t.shape for name, t in ours.items()} == {name: t.shape for name, t in before.items()}:
        assert places(found) == places(read_weights(base))


def places(weights: Weights) -> dict[str, list[str]]:
    """Tensors of each file, in the order of their data."""
    return {file: [t.name for t in header.tensors] for file, header in weights.headers.items()}


@pytest.mark.parametrize("variant", ["plain", "save head", "save both", "resized"])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "gemma3", "gemma3_text", "qwen2_5_vl"])
def test_the_configuration_says_what_peft_says_of_ties_and_sizes(
    zoo: Zoo, tmp_path: Path, kind: str, variant: str
) -> None:
    from transformers import AutoConfig

    base, adapter = zoo.pair(kind, variant)
    merged(base, adapter, tmp_path / "out")
    ours = AutoConfig.from_pretrained(tmp_path / "out")
    theirs = AutoConfig.for_model(**peft_config(base, adapter))
    assert ours.get_text_config().vocab_size == theirs.get_text_config().vocab_size
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings


def test_a_merge_is_no_copy(zoo: Zoo, tmp_path: Path) -> None:
    """The comparison above would notice: a plain merge differs from its base."""
    base, adapter = zoo.pair("llama", "plain")
    with pytest.raises(AssertionError, match="q_proj"):
        assert_same_bytes(stored(base), peft_merged(base, adapter))
