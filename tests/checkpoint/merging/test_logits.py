"""--check logits: equal where the merge is right, different where it is not, with the figures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from oracle import stored
from our_merge import no_processes
from safetensors.torch import load_file, save_file
from zoo import Zoo

from hubtools.checkpoint.adapter import open_adapter
from hubtools.checkpoint.merging import logits, memory
from hubtools.checkpoint.merging.logits import check_logits, require_equal
from hubtools.checkpoint.merging.merge import merge
from hubtools.checkpoint.merging.options import MergeOptions
from hubtools.errors import CheckError, EnvironmentFailure


@pytest.fixture(autouse=True, scope="module")
def here() -> Iterator[None]:
    with no_processes():
        yield


def compared(base: Path, merged: Path, *adapters: Path) -> dict[str, Any]:
    scratch = merged.with_name("scratch")
    found = check_logits(
        [open_adapter(adapter, scratch / "opened") for adapter in adapters],
        base,
        merged,
        scratch=scratch / "staged",
        log=merged.with_name("log"),
    )
    assert not (scratch / "staged").exists()
    return found


def merged(base: Path, adapters: Sequence[Path], out: Path, **options: Any) -> Path:
    merge(adapters, base, out, options=MergeOptions(**options), log=out.with_name("log"))
    return out


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen3_moe", "gemma3", "qwen2_5_vl"])
def test_a_merge_answers_as_its_adapter(zoo: Zoo, tmp_path: Path, kind: str, dtype: str) -> None:
    base, adapter = zoo.pair(kind, "plain", dtype)
    found = compared(base, merged(base, [adapter], tmp_path / "out"), adapter)
    require_equal(found, tmp_path / "out", kept_tied=False)
    assert found["max_difference"] < found["adapter_effect"] / 20
    assert found["bound"] < found["adapter_effect"] / 5
    assert found["top1_agreement"] > 0.9
    assert (found["prompts"], found["dtype"]) == (4, "float32")


@pytest.mark.parametrize(
    "variant",
    [
        "dora", "lora bias", "bias all", "save both", "tokens", "resized", "replicated",
        "classifier", "nested", "bin",
    ],
)  # fmt: skip
def test_variants(zoo: Zoo, tmp_path: Path, variant: str) -> None:
    kind = "gpt2" if variant == "lora bias" else "llama"
    base, adapter = zoo.pair(kind, variant)
    found = compared(base, merged(base, [adapter], tmp_path / "out"), adapter)
    assert found["equal"], found


def test_experts_of_an_old_layout(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.pair("mixtral", "old experts")
    found = compared(base, merged(base, [adapter], tmp_path / "out"), adapter)
    assert found["equal"], found


def test_several_adapters_act_together(zoo: Zoo, tmp_path: Path) -> None:
    base, first = zoo.pair("llama", "plain")
    second = zoo.adapter(base, "second")
    out = merged(base, [first, second], tmp_path / "out")
    assert compared(base, out, first, second)["equal"]
    assert not compared(base, out, first)["equal"]


def test_a_model_without_a_tokenizer_is_compared_on_ids(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.pair("llama", "plain")
    out = merged(base, [adapter], tmp_path / "out")
    for file in out.glob("token*"):
        file.unlink()
    found = compared(base, out, adapter)
    assert (found["prompts"], found["equal"]) == (1, True)


@pytest.mark.parametrize("damage", ["one matrix as in the base", "one row", "twice the change"])
def test_a_wrong_merge_is_found(zoo: Zoo, tmp_path: Path, damage: str) -> None:
    base, adapter = zoo.pair("llama", "plain")
    out = merged(base, [adapter], tmp_path / "out")
    tensors, before = load_file(out / "model.safetensors"), stored(base)
    name = "model.layers.0.self_attn.v_proj.weight"
    change = tensors[name] - before[name]
    if damage == "one row":
        tensors[name][3] = 0
    else:
        tensors[name] = before[name] + (0 if damage.startswith("one") else 2) * change
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    found = compared(base, out, adapter)
    assert found["max_difference"] > found["bound"]
    with pytest.raises(CheckError, match="HT154") as caught:
        require_equal(found, out, kept_tied=False)
    assert f"{found['max_difference']:.3g}" in caught.value.message
    assert caught.value.where == str(out)


def test_keeping_ties_is_named_as_the_reason(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.pair("qwen2", "embedding")
    out = merged(base, [adapter], tmp_path / "out", keep_tied=True)
    found = compared(base, out, adapter)
    with pytest.raises(CheckError, match="HT154") as caught:
        require_equal(found, out, kept_tied=True)
    assert "--keep-tied" in caught.value.next
    assert compared(base, merged(base, [adapter], tmp_path / "apart"), adapter)["equal"]


def test_changes_below_the_rounding_are_lost_and_float32_keeps_them(
    zoo: Zoo, tmp_path: Path
) -> None:
    base, known = zoo.pair("llama", "plain")
    adapter = tmp_path / "faint"
    shutil.copytree(known, adapter)
    file = adapter / "adapter_model.safetensors"
    faint = {n: t * (2e-3 if "lora_B" in n else 1) for n, t in load_file(file).items()}
    save_file(faint, file)
    found = compared(base, merged(base, [adapter], tmp_path / "out"), adapter)
    assert found["max_difference"] > found["adapter_effect"] / 4
    wide = compared(base, merged(base, [adapter], tmp_path / "wide", dtype="float32"), adapter)
    assert wide["equal"]
    assert wide["max_difference"] < wide["adapter_effect"] / 50


def test_a_loss_names_float32_as_the_fix(tmp_path: Path) -> None:
    found = {
        "equal": False, "max_difference": 0.9, "adapter_effect": 1.0, "bound": 0.1,
        "max_logit": 3.0, "top1_agreement": 0.5,
    }  # fmt: skip
    with pytest.raises(CheckError, match="HT154") as caught:
        require_equal(found, tmp_path, kept_tied=False)
    assert "--dtype float32" in caught.value.next
    with pytest.raises(CheckError, match="HT154") as wide:
        require_equal(found, tmp_path, kept_tied=False, narrow=False)
    assert "float32" not in wide.value.next
    assert "not in the merged model" in wide.value.detail[1]
    with pytest.raises(CheckError) as other:
        require_equal({**found, "max_difference": 0.2}, tmp_path, kept_tied=False)
    assert "float32" not in other.value.next


def test_memory_decides_how_it_is_computed(
    zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, adapter = zoo.pair("llama", "plain")
    out = merged(base, [adapter], tmp_path / "out")
    some = memory.LIBRARIES + 3 * sum(t.numel() for t in stored(out).values())
    for module in (logits, memory):
        monkeypatch.setattr(module, "available_memory", lambda: some + 200_000)
    found = compared(base, out, adapter)
    assert (found["dtype"], found["equal"]) == ("bfloat16", True)
    for module in (logits, memory):
        monkeypatch.setattr(module, "available_memory", lambda: 1000)
    with pytest.raises(EnvironmentFailure, match="HT153"):
        compared(base, out, adapter)


def test_trained_token_rows_are_among_the_prompts(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.pair("llama", "tokens")
    out = merged(base, [adapter], tmp_path / "out")
    tensors = load_file(out / "model.safetensors")
    rows = json.loads((adapter / "adapter_config.json").read_bytes())["trainable_token_indices"]
    tensors["model.embed_tokens.weight"][rows[-1]] = 0
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    for file in out.glob("token*"):
        file.unlink()
    assert torch.count_nonzero(stored(base)["model.embed_tokens.weight"][rows[-1]])
    assert not compared(base, out, adapter)["equal"]
