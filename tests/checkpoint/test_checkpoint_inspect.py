"""What a directory is, what of it is published, and what its trainer wrote down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_models import TEMPLATE, save_tokenizer

from hubtools.checkpoint.carry import carried_files, publishable_files
from hubtools.checkpoint.facts import checkpoint_facts
from hubtools.checkpoint.inspect import inspect_checkpoint
from hubtools.checkpoint.trainer import read_trainer_state
from hubtools.errors import CheckError

Pair = tuple[Path, Path]
TOKENIZER = ["chat_template.jinja", "tokenizer.json", "tokenizer_config.json"]


def test_a_model(made: Any) -> None:
    base, _ = made("qwen3", "float16")
    info = inspect_checkpoint(base)
    assert (info.kind, info.dtype, info.architecture, info.model_type) == (
        "full",
        "float16",
        "Qwen3ForCausalLM",
        "qwen3",
    )
    assert info.weights == ("model.safetensors",)
    assert info.bytes == (base / "model.safetensors").stat().st_size
    assert info.parameters == sum(
        parameter.numel() for parameter in _model(base).state_dict().values()
    )
    assert (info.adapter, info.trainer, info.findings) == (None, None, ())


def _model(base: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(base)


def test_an_adapter(made: Any) -> None:
    base, adapter = made("qwen2")
    info = inspect_checkpoint(adapter)
    assert (info.kind, info.dtype, info.weights) == (
        "adapter",
        "float32",
        ("adapter_model.safetensors",),
    )
    assert info.base_hint == str(base)
    assert info.adapter is not None
    assert (info.adapter.rank, info.adapter.alpha) == (8, 24.0)
    assert sorted(info.adapter.target_modules) == ["down_proj", "q_proj", "v_proj"]
    (finding,) = info.findings
    assert (finding.id, finding.level) == ("HT107", "warning")
    assert str(base) in finding.message


def test_an_adapter_that_cannot_be_merged_is_still_an_adapter(broken: Pair) -> None:
    file = broken[1] / "adapter_config.json"
    file.write_text(json.dumps({"peft_type": "VERA", "base_model_name_or_path": "owner/base"}))
    info = inspect_checkpoint(broken[1])
    assert (info.kind, info.base_hint, info.findings) == ("adapter", "owner/base", ())


@pytest.mark.parametrize(
    ("names", "id", "words"),
    [
        ([], "HT101", "neither a model nor an adapter"),
        (["config.json"], "HT101", "neither a model"),
        (["config.json", "pytorch_model.bin"], "HT102", "pickle"),
        (["adapter_config.json"], "HT101", "without weights"),
        (["adapter_config.json", "adapter_model.bin"], "HT102", "pickle"),
        (["actor/model_world_size_2_rank_0.pt"], "HT103", "own shards"),
        (["pytorch_model_fsdp_0/__0_0.distcp"], "HT103", "own shards"),
    ],
)
def test_what_is_not_a_checkpoint(tmp_path: Path, names: list[str], id: str, words: str) -> None:
    for name in names:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("{}")
    with pytest.raises(CheckError, match=id) as caught:
        inspect_checkpoint(tmp_path)
    assert words in caught.value.message
    assert caught.value.next


def test_a_run_directory_names_its_checkpoints(tmp_path: Path) -> None:
    for step in ("checkpoint-4", "checkpoint-8"):
        (tmp_path / step).mkdir()
        (tmp_path / step / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckError, match="HT101") as caught:
        inspect_checkpoint(tmp_path)
    assert caught.value.detail == ("It contains checkpoints: checkpoint-4, checkpoint-8",)
    assert str(tmp_path / "checkpoint-8") in caught.value.next
    with pytest.raises(CheckError, match="not a directory"):
        inspect_checkpoint(tmp_path / "missing")


@pytest.mark.parametrize("text", ["", "[1]", '{"a":\n1,}', "[" * 100_000, b"\xff\xfe"])
def test_a_config_that_is_not_json(broken: Pair, text: Any) -> None:
    data = text if isinstance(text, bytes) else text.encode()
    (broken[1] / "adapter_config.json").write_bytes(data)
    with pytest.raises(CheckError, match="HT106") as caught:
        inspect_checkpoint(broken[1])
    assert "adapter_config.json" in caught.value.where


STAYS_HOME = (
    "optimizer.pt", "scheduler.pt", "trainer_state.json", "training_args.bin", ".env", "wandb.log",
    "events.out.tfevents.1", "pytorch_model.bin", "README.md", "train.py",
)  # fmt: skip


def test_only_listed_files_are_published(broken: Pair) -> None:
    base, adapter = broken
    for name in STAYS_HOME:
        (base / name).write_text("{}")
        (adapter / name).write_text("{}")
    save_tokenizer(adapter)
    (base / "modeling_tiny.py").write_text("")
    assert sorted(publishable_files(base, "full")) == sorted(
        ["LICENSE", "NOTICE.txt", "config.json", "generation_config.json", "model.safetensors",
         "modeling_tiny.py", *TOKENIZER]
    )  # fmt: skip
    adapter_files = publishable_files(adapter, "adapter")
    assert sorted(adapter_files) == sorted(
        ["adapter_config.json", "adapter_model.safetensors", *TOKENIZER]
    )
    assert all(path == adapter / name for name, path in adapter_files.items())
    with pytest.raises(CheckError, match="HT101"):
        publishable_files(base, "adapter")


def test_a_chat_template_alone_wins_over_the_base(broken: Pair) -> None:
    base, adapter = broken
    for file in adapter.glob("tokenizer*"):
        file.unlink()
    (adapter / "chat_template.jinja").write_text("trained")
    (adapter / "additional_chat_templates").mkdir()
    (adapter / "additional_chat_templates" / "tools.jinja").write_text("tools")
    files = carried_files(adapter, base)
    assert files["chat_template.jinja"] == adapter / "chat_template.jinja"
    assert files["tokenizer.json"] == base / "tokenizer.json"
    assert "additional_chat_templates/tools.jinja" in files


def test_a_trained_tokenizer_without_template_keeps_that_of_the_base(broken: Pair) -> None:
    base, adapter = broken
    save_tokenizer(adapter, template=None)
    files = carried_files(adapter, base)
    assert files["tokenizer.json"] == adapter / "tokenizer.json"
    assert files["chat_template.jinja"] == base / "chat_template.jinja"
    config = json.loads((adapter / "tokenizer_config.json").read_bytes())
    inline = {**config, "chat_template": TEMPLATE}
    (adapter / "tokenizer_config.json").write_text(json.dumps(inline))
    assert "chat_template.jinja" not in carried_files(adapter, base)


STATE = {
    "global_step": 8,
    "max_steps": 16,
    "epoch": 0.5,
    "num_train_epochs": 1,
    "train_batch_size": 4,
    "log_history": [
        {"step": 2, "learning_rate": 1e-05, "loss": 3.5},
        {"step": 4, "learning_rate": 2e-05, "loss": 2.5},
        {"step": 8, "learning_rate": 1e-06, "loss": float("nan")},
        {"step": 8, "eval_loss": 1.0},
    ],
}


def test_the_trainer_state_with_pointers(tmp_path: Path) -> None:
    assert read_trainer_state(tmp_path) is None
    (tmp_path / "trainer_state.json").write_text(json.dumps(STATE))
    state = read_trainer_state(tmp_path)
    assert state is not None
    assert (state.global_step, state.max_steps, state.epoch) == (8, 16, 0.5)
    assert (state.learning_rate, state.loss, state.train_batch_size) == (2e-05, 2.5, 4)
    for name, pointer in state.pointers.items():
        value: Any = STATE
        for part in pointer[1:].split("/"):
            value = value[int(part)] if isinstance(value, list) else value[part]
        assert value == getattr(state, name)


@pytest.mark.parametrize("log", [None, 3, [None, {"loss": "x", "learning_rate": True}]])
def test_an_odd_trainer_state_has_no_values(tmp_path: Path, log: Any) -> None:
    odd = {"global_step": "8", "epoch": None, "log_history": log}
    (tmp_path / "trainer_state.json").write_text(json.dumps(odd))
    state = read_trainer_state(tmp_path)
    assert state is not None
    assert state.pointers == {}
    assert state.loss is state.learning_rate is state.global_step is None


def test_facts_point_into_the_files(broken: Pair) -> None:
    _, adapter = broken
    (adapter / "trainer_state.json").write_text(json.dumps(STATE))
    info = inspect_checkpoint(adapter)
    facts = checkpoint_facts(
        info.trainer, info.adapter, run=adapter, member="a/s8", weights="0" * 64, path="runs/a"
    )
    found = {fact.id: (fact.value, fact.source.pointer) for fact in facts}
    assert found["train.optimizer_steps"] == (8, "/global_step")
    assert found["train.peak_learning_rate"] == (2e-05, "/log_history/1/learning_rate")
    assert found["train.lora_r"] == (8, "/r")
