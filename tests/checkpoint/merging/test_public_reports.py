"""What went wrong for others, each report as a small case with the outcome it should have had.

Names, ties, vocabularies, experts and files; formulas and dtypes are in `test_public_arithmetic`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracle import assert_same_bytes, peft_merged, stored
from our_merge import merged, no_processes
from reports import (
    HEAD,
    WEIGHTS,
    assert_answers_as_the_adapter,
    copied,
    edit_tensors,
    refused,
)
from tiny_models import TEMPLATE, save_tokenizer
from zoo import VISUAL, Zoo


@pytest.fixture(scope="module", autouse=True)
def _here() -> Any:
    with no_processes():
        yield


# Ties and whole modules


@pytest.mark.parametrize("kind", ["qwen2", "gemma3_text", "gpt2"])
def test_both_matrices_of_a_tied_base_were_trained(zoo: Zoo, tmp_path: Path, kind: str) -> None:
    """transformers#45127, transformers#45156, peft#2777, peft#2972: the config still says tied."""
    base, adapter = zoo.pair(kind, "save both", "float32")
    out = tmp_path / "out"
    ours, _ = merged(base, adapter, out)
    saved = [t for n, t in sorted(stored(adapter).items()) if "lm_head" in n or "emb" in n]
    both = [name for name in ours if "lm_head" in name or "embed_tokens" in name or ".wte" in name]
    assert len(both) == 2
    assert not (ours[both[0]] == ours[both[1]]).all()
    assert all(any((ours[name] == tensor).all() for name in both) for tensor in saved)
    assert json.loads((out / "config.json").read_bytes())["tie_word_embeddings"] is False
    assert_answers_as_the_adapter(base, adapter, out)


@pytest.mark.parametrize("variant", ["save head", "save embedding", "head", "embedding"])
def test_a_trained_head_or_embedding_is_not_dropped(zoo: Zoo, tmp_path: Path, variant: str) -> None:
    """unsloth#1971, unsloth#9331, unsloth#4098, unsloth-zoo#369."""
    base, adapter = zoo.pair("llama", variant)
    ours, report = merged(base, adapter, tmp_path / "out")
    before = stored(base)
    name = "lm_head.weight" if "head" in variant else "model.embed_tokens.weight"
    assert not (ours[name] == before[name]).all()
    if variant.startswith("save"):
        assert (ours[name] == stored(adapter)[HEAD + name]).all()
    assert report["changed_tensors"] == sum(
        not (ours[name] == tensor).all() for name, tensor in before.items()
    )


@pytest.mark.parametrize(
    "name", ["model.rotary.weight", "model.layers.7.mlp.up_proj.weight", "lm_head_2.weight"]
)
def test_a_tensor_of_the_adapter_that_nothing_uses(zoo: Zoo, tmp_path: Path, name: str) -> None:
    """unsloth#1971, unsloth-zoo#369: what is left over is an error, not a smaller merge."""
    import torch

    base, adapter = zoo.pair("llama", "plain")
    adapter = copied(adapter, tmp_path / "adapter")
    edit_tensors(adapter, lambda tensors: tensors.update({HEAD + name: torch.ones(64)}))
    error = refused(base, adapter, tmp_path / "out", "HT111", "HT112", "HT143")
    assert name.removesuffix(".weight") in str((error.message, error.detail))


# Added tokens


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma3"])
def test_an_extended_vocabulary(zoo: Zoo, tmp_path: Path, kind: str) -> None:
    """peft#1457, peft#1396, peft#1173, LlamaFactory#3125, open-instruct#190: size mismatch."""
    base, adapter = zoo.pair(kind, "resized", "float32")
    adapter = copied(adapter, tmp_path / "resized")
    save_tokenizer(adapter, "trained: " + TEMPLATE)
    out = tmp_path / "out"
    _, report = merged(base, adapter, out)
    config = json.loads((out / "config.json").read_bytes())
    assert config.get("text_config", config)["vocab_size"] == 136
    assert report["carried"]["tokenizer.json"] == "adapter"
    assert (out / "chat_template.jinja").read_text().startswith("trained: ")
    assert_answers_as_the_adapter(base, adapter, out)


def test_factors_for_rows_that_the_base_does_not_have(zoo: Zoo, tmp_path: Path) -> None:
    """peft#1173: LoRA on a resized embedding is no use without the rows it was added to."""
    base, adapter = zoo.pair("llama", "resized embedding")
    adapter = copied(adapter, tmp_path / "resized embedding")
    rows = [f"{HEAD}{name}.base_layer.weight" for name in ("lm_head", "model.embed_tokens")]
    edit_tensors(adapter, lambda tensors: [tensors.pop(name) for name in rows])
    error = refused(base, adapter, tmp_path / "out", "HT113", "HT140")
    assert "136" in str((error.message, error.detail))


# Names


@pytest.mark.parametrize("kind", VISUAL)
def test_names_before_and_after_the_renaming(zoo: Zoo, tmp_path: Path, kind: str) -> None:
    """peft#2586, peft#2566, unsloth-zoo#1234, unsloth-zoo#158: nothing changed."""
    base = zoo.base(kind)
    new, report = merged(base, zoo.adapter(base, "plain"), tmp_path / "new")
    old, again = merged(base, zoo.adapter(base, "old names"), tmp_path / "old")
    assert_same_bytes(old, new)
    assert report["changed_tensors"] == again["changed_tensors"] == 10


@pytest.mark.parametrize("kind", ["llama", *VISUAL])
@pytest.mark.parametrize("share", ["all", "one"])
def test_names_that_match_nothing(zoo: Zoo, tmp_path: Path, kind: str, share: str) -> None:
    """peft#2586, unsloth-zoo#158: no match, or some only, is an error that lists them."""
    base, adapter = zoo.pair(kind, "plain")
    adapter = copied(adapter, tmp_path / "adapter")

    def rename(tensors: dict[str, Any]) -> None:
        names = sorted(tensors)
        for name in names if share == "all" else names[:2]:
            tensors[name.replace(HEAD, f"{HEAD}elsewhere.")] = tensors.pop(name)

    edit_tensors(adapter, rename)
    error = refused(base, adapter, tmp_path / "out", "HT112")
    assert "elsewhere." in error.detail[0]


SPELLINGS: dict[str, Callable[[str], str]] = {
    "no prefix": lambda name: name.removeprefix(HEAD),
    "prefix twice": lambda name: HEAD + name,
    "adapter name": lambda name: name.replace(".weight", ".default.weight"),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("variant", ["plain", "save both"])
def test_other_spellings_of_the_same_name(
    zoo: Zoo, tmp_path: Path, spelling: str, variant: str
) -> None:
    """Relax#262, NeMo Automodel#3595, peft#1579, peft#3110."""
    base, adapter = zoo.pair("llama", variant)
    other = copied(adapter, tmp_path / "adapter")

    def respell(tensors: dict[str, Any]) -> None:
        for name in sorted(tensors):
            if spelling != "adapter name" or "lora_" in name:
                tensors[SPELLINGS[spelling](name)] = tensors.pop(name)

    edit_tensors(other, respell)
    ours, _ = merged(base, other, tmp_path / "out")
    assert_same_bytes(ours, peft_merged(base, adapter))


@pytest.mark.parametrize("saved", ["modules_to_save", "modules_to_save.default"])
def test_whole_modules_under_the_name_of_their_wrapper(
    zoo: Zoo, tmp_path: Path, saved: str
) -> None:
    """peft#1579: other writers keep the wrapper's name in the file."""
    base, adapter = zoo.pair("llama", "save head")
    other = copied(adapter, tmp_path / "adapter")
    name = f"{HEAD}lm_head.weight"
    edit_tensors(
        other, lambda t: t.update({name.replace(".weight", f".{saved}.weight"): t.pop(name)})
    )
    ours, _ = merged(base, other, tmp_path / "out")
    assert_same_bytes(ours, peft_merged(base, adapter))


# Experts


@pytest.mark.parametrize("kind", ["qwen3_moe", "mixtral", "qwen2_moe"])
@pytest.mark.parametrize("variant", ["old experts", "gate_up and down", "old gate only"])
def test_adapters_of_experts_reach_their_experts(
    zoo: Zoo, tmp_path: Path, kind: str, variant: str
) -> None:
    """peft#3009, peft#3711, Automodel#3284: fused in memory, one file entry per expert."""
    base, adapter = zoo.pair(kind, variant)
    ours, _ = merged(base, adapter, tmp_path / "out")
    before = stored(base)
    changed = {name for name in before if not (ours[name] == before[name]).all()}
    experts = {name for name in before if ".experts." in name}
    if variant == "old gate only":
        experts = {name for name in experts if "gate_proj" in name or ".w1." in name}
    assert len(experts) in (2 * 4, 2 * 4 * 3)
    assert changed & {name for name in before if ".experts." in name} == experts


def test_the_shared_expert_is_not_one_of_the_others(zoo: Zoo, tmp_path: Path) -> None:
    """Automodel#1755: factors of the shared expert went to the routed ones."""
    base, adapter = zoo.pair("qwen2_moe", "plain")
    ours, _ = merged(base, adapter, tmp_path / "out")
    before = stored(base)
    changed = {name for name in before if not (ours[name] == before[name]).all()}
    assert {name.split("mlp.")[1] for name in changed if "mlp." in name} == {
        "shared_expert.gate_proj.weight",
        "shared_expert.down_proj.weight",
    }
    assert_same_bytes(ours, peft_merged(base, adapter))


# Adapters as files


def test_an_adapter_that_is_a_pickle(zoo: Zoo, tmp_path: Path) -> None:
    """axolotl#902 and others: adapter_model.bin alone."""
    base, adapter = zoo.pair("llama", "bin")
    ours, _ = merged(base, adapter, tmp_path / "out")
    assert_same_bytes(ours, peft_merged(base, zoo.adapter(base, "plain")))


def test_a_pickle_that_holds_next_to_nothing(zoo: Zoo, tmp_path: Path) -> None:
    """lorax#51: 443 bytes, from a run that saved an empty state."""
    import torch

    base, adapter = zoo.pair("llama", "plain")
    adapter = copied(adapter, tmp_path / "adapter")
    (adapter / WEIGHTS).unlink()
    torch.save({}, adapter / "adapter_model.bin")
    refused(base, adapter, tmp_path / "out", "HT114", "HT151")


@pytest.mark.parametrize("shape", [(0,), (512,), (0, 64)])
def test_parameters_that_were_not_gathered(
    zoo: Zoo, tmp_path: Path, shape: tuple[int, ...]
) -> None:
    """qlora#28: ZeRO-3 leaves empty or flat tensors."""
    import torch

    base, adapter = zoo.pair("llama", "plain")
    adapter = copied(adapter, tmp_path / "adapter")

    def flatten(tensors: dict[str, Any]) -> None:
        name = next(name for name in sorted(tensors) if "lora_A" in name)
        tensors[name] = torch.zeros(shape)

    edit_tensors(adapter, flatten)
    error = refused(base, adapter, tmp_path / "out", "HT114")
    assert str(list(shape)) in str(error.detail)


@pytest.mark.parametrize("side", ["lora_A", "lora_B"])
def test_half_an_adapter(zoo: Zoo, tmp_path: Path, side: str) -> None:
    """A writer that was stopped: one factor without the other."""
    base, adapter = zoo.pair("llama", "plain")
    adapter = copied(adapter, tmp_path / "adapter")
    edit_tensors(adapter, lambda t: t.pop(next(name for name in sorted(t) if side in name)))
    refused(base, adapter, tmp_path / "out", "HT114")
