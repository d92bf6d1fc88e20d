"""A checkpoint that does not load, compute or fit its tokenizer is not published."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_models import save_tokenizer

from hubtools.checkpoint.merging.merge import merge
from hubtools.checkpoint.talk import talk
from hubtools.checkpoint.talk_child import work
from hubtools.errors import CheckError, UsageError
from hubtools.progress import silent

Pair = tuple[Path, Path]


def spoken(path: Path, base: Path | None = None) -> dict[str, Any]:
    """What the child does, without the seconds it takes to start one."""
    return work({"path": str(path), "base": str(base or ""), "label": "load"}, silent)


def edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, {"format": "pt"})


def test_merged_and_adapter_say_the_same(made: Any, tmp_path: Path) -> None:
    base, adapter = made("llama", "float32")
    merge(adapter, base, tmp_path / "out", log=tmp_path / "log")
    steps: list[tuple[int, int | None]] = []

    def listen(label: str, done: int, total: int | None, unit: str) -> None:
        steps.append((done, total))

    over_base = talk(adapter, base=base, log=tmp_path / "log", progress=listen)
    merged, plain = spoken(tmp_path / "out"), spoken(base)
    assert 1 <= len(merged["tokens"]) <= 16
    assert merged["tokens"] == over_base["tokens"]
    assert merged["tokens"] != plain["tokens"]
    assert steps == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert merged["prompt"] == "[user] What is the capital of France?\n[assistant] "
    assert merged["chat_template"] is True
    assert merged["dtype"] == "float32"
    assert merged["vocabulary"] == {"tokenizer": 130, "embedding": 131}
    assert merged["findings"] == []
    assert sorted(merged["versions"]) == ["torch", "transformers"]
    assert sorted(over_base["versions"]) == ["peft", "torch", "transformers"]


def test_a_tensor_that_would_be_made_up(broken: Pair) -> None:
    edit(broken[0], lambda tensors: tensors.pop("model.norm.weight"))
    with pytest.raises(CheckError, match="HT130") as caught:
        spoken(broken[0])
    assert caught.value.detail[0] == "missing keys: model.norm.weight"


def test_logits_that_are_not_numbers(broken: Pair) -> None:
    edit(broken[0], lambda tensors: tensors["model.norm.weight"].fill_(float("nan")))
    with pytest.raises(CheckError, match="HT131"):
        spoken(broken[0])


def test_a_model_nobody_knows(broken: Pair) -> None:
    file = broken[0] / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "model_type": "unheard_of"}))
    with pytest.raises(CheckError, match="HT130") as caught:
        spoken(broken[0])
    assert "unheard_of" in " ".join(caught.value.detail)
    assert caught.value.detail[-1] == "Nothing was published."


def test_all_that_does_not_fit_is_found_at_once(broken: Pair) -> None:
    base = broken[0]
    save_tokenizer(base, "{% for m in messages %}{{ m.role }}{% endfor %}")
    tokenizer = json.loads((base / "tokenizer.json").read_bytes())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary |= {f"extra{n}": 130 + n for n in range(5)}
    (base / "tokenizer.json").write_text(json.dumps(tokenizer))
    generation = {"eos_token_id": [7], "transformers_version": "5.24.0"}
    (base / "generation_config.json").write_text(json.dumps(generation))
    config = json.loads((base / "tokenizer_config.json").read_bytes())
    (base / "tokenizer_config.json").write_text(json.dumps({**config, "pad_token": "extra4"}))
    said = spoken(base)
    found = {finding["id"]: finding for finding in said["findings"]}
    assert sorted(found) == ["HT132", "HT133", "HT134", "HT135"]
    assert found["HT132"]["message"] == "the tokenizer has 135 tokens, the embedding 131 rows"
    assert found["HT133"]["message"] == "the tokenizer ends with 2 (</s>), generation stops at 7"
    assert found["HT135"]["message"] == "the chat template loses what the user said"
    assert (found["HT132"]["level"], found["HT133"]["level"]) == ("error", "warning")
    assert said["chat_template"] is False


def test_no_tokenizer(broken: Pair) -> None:
    for file in broken[0].glob("tokenizer*"):
        file.unlink()
    with pytest.raises(CheckError, match="HT130") as caught:
        spoken(broken[0])
    assert caught.value.detail[0].startswith("tokenizer: ")


def test_an_adapter_needs_its_base(made: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="HT124"):
        talk(made()[1], log=tmp_path / "log")


def test_an_adapter_over_another_base(made: Any) -> None:
    with pytest.raises(CheckError, match="HT130"):
        spoken(made("llama")[1], made("gpt_neox")[0])
