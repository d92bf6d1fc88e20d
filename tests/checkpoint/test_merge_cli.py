"""`hubtools merge` beyond one plain adapter: which base, several adapters, engines, the check."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator
from oracle import assert_same_bytes, peft_merged, stored
from other_types import save_other
from our_merge import no_processes
from zoo import Zoo

from hubtools.cli import spoken as view
from hubtools.cli.merge import command
from hubtools.cli.output import Output
from hubtools.errors import CheckError, HubtoolsError, UsageError

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "schemas" / "merge.schema.json"


@pytest.fixture(autouse=True, scope="module")
def here() -> Iterator[None]:
    with no_processes():
        yield


def run(*argv: str | Path) -> Result:
    return CliRunner().invoke(command, [str(part) for part in argv])


def answer(*argv: str | Path) -> dict[str, Any]:
    result = run(*argv, "--json")
    assert result.exit_code == 0, result.exception
    data: dict[str, Any] = json.loads(result.stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(data)
    return data


def failure(*argv: str | Path) -> HubtoolsError:
    error = run(*argv).exception
    assert isinstance(error, HubtoolsError)
    return error


def test_the_base_that_the_adapter_names(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.pair("llama", "plain")
    result = run(adapter, "-o", tmp_path / "out", "--no-talk")
    assert result.exit_code == 0, result.exception
    assert f"The base is the one that adapter_config.json names: {base}\n" in result.stderr
    assert_same_bytes(stored(tmp_path / "out"), peft_merged(base, adapter))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"base_model_name_or_path": None}, "which base? the adapters name no base"),
        ({"base_model_name_or_path": "/gone/model"}, "no such base"),
        ({"base_model_name_or_path": "owner/name"}, "must be pinned to a commit"),
        ({"base_model_name_or_path": "owner/name", "revision": "main"}, "'main' is not a commit"),
    ],
)
def test_a_base_that_cannot_be_found(
    zoo: Zoo, tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    adapter = changed(zoo.pair("llama", "plain")[1], tmp_path / "adapter", **fields)
    error = failure(adapter, "-o", tmp_path / "out")
    assert isinstance(error, UsageError)
    assert error.id == "HT121"
    assert words in error.message
    assert error.next
    assert not (tmp_path / "out").exists()


def test_adapters_that_name_different_bases(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.pair("llama", "plain")
    other = changed(adapter, tmp_path / "other", base_model_name_or_path="owner/other")
    error = failure(adapter, other, "-o", tmp_path / "out")
    assert (error.id, "owner/other" in error.message) == ("HT121", True)
    assert run(adapter, other, "--base", base, "--dry-run").exit_code == 0


def test_several_adapters_in_turn_with_the_check(zoo: Zoo, tmp_path: Path) -> None:
    base, first = zoo.pair("llama", "plain")
    second = zoo.adapter(base, "second")
    out = tmp_path / "out"
    data = answer(first, second, "--base", base, "-o", out, "--check", "logits")
    assert_same_bytes(stored(out), peft_merged(base, first, second))
    assert len(data["report"]["adapters"]) == 2
    assert data["logits"]["equal"]
    assert data["talk"]["tokens"]
    assert json.loads((tmp_path / ".out.merge" / "logits.json").read_bytes()) == data["logits"]


@pytest.mark.parametrize(
    ("kind", "variant"),
    [("qwen2_5_vl", "old names"), ("gemma3", "old names"), ("qwen3_moe", "old experts")],
)
def test_names_of_an_old_release_are_compared_too(
    zoo: Zoo, tmp_path: Path, kind: str, variant: str
) -> None:
    base, adapter = zoo.pair(kind, variant)
    out = tmp_path / "out"
    data = answer(adapter, "--base", base, "-o", out, "--check", "logits", "--no-talk")
    assert data["logits"]["equal"]
    assert data["logits"]["adapter_effect"] > 4 * data["logits"]["bound"]


def test_a_difference_is_told_and_ends_with_an_error(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.pair("qwen2", "embedding")
    argv = (adapter, "--base", base, "-o", tmp_path / "out", "--keep-tied", "--check", "logits")
    result = run(*argv)
    assert isinstance(result.exception, CheckError)
    assert result.exception.id == "HT154"
    assert "✗ logits  differ by at most" in result.stderr
    assert result.stdout == ""
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_the_plan_names_what_becomes_of_ties(zoo: Zoo) -> None:
    base, adapter = zoo.pair("qwen2", "embedding")
    story = run(adapter, "--base", base, "--dry-run").stderr
    assert "  embed_tokens ×1, q_proj ×2\n" in story
    assert "  added: lm_head.weight\n" in story
    assert "  config.json: tie_word_embeddings becomes false\n" in story
    assert "  note: model.embed_tokens.weight and lm_head.weight were one tensor" in story
    kept = answer(adapter, "--base", base, "--dry-run", "--keep-tied")
    assert (kept["plan"]["added"], kept["plan"]["options"]["keep_tied"]) == ([], True)


def test_the_report_speaks_by_kind(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.pair("llama", "save norm")
    result = run(adapter, "--base", base, "-o", tmp_path / "out", "--no-talk")
    line = r"  down_proj +×2 +‖Δ‖/‖W‖ \d\.\d\de[+-]\d\d  \d+\.\d% of elements did not move\n"
    assert re.search(line, result.stderr)


def test_another_dtype(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.pair("llama", "plain")
    out = tmp_path / "out"
    data = answer(adapter, "--base", base, "-o", out, "--dtype", "float32", "--no-talk")
    assert data["plan"]["dtypes"] == {"F32": 21}
    assert {str(tensor.dtype) for tensor in stored(out).values()} == {"torch.float32"}


def test_other_types_are_sent_to_peft_and_merged_there(zoo: Zoo, tmp_path: Path) -> None:
    base = zoo.base("llama", "float32")
    adapter = save_other(tmp_path / "LOHA", base, "LOHA")
    assert failure(adapter, "--dry-run").id == "HT150"
    plan = answer(adapter, "--engine", "peft", "--dry-run")["plan"]
    assert (plan["types"], plan["engine"]) == (["LOHA"], "peft")
    story = run(adapter, "--engine", "peft", "--dry-run").stderr
    assert re.search(
        r"  LOHA through PEFT: 16 adapter tensors, about \d+\.\d MB of memory; ", story
    )
    out = tmp_path / "out"
    data = answer(adapter, "--engine", "peft", "-o", out, "--check", "logits", "--no-talk")
    assert data["report"]["engine"] == "peft"
    assert data["logits"]["equal"]


def test_a_classifier_is_loaded_and_says_nothing(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.pair("llama", "classifier")
    result = run(adapter, "--base", base, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.exception
    assert "✓ loads   and computes, in bfloat16; it does not generate" in result.stderr


def test_a_pickle_needs_nothing_from_the_user(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.pair("llama", "bin")
    assert run(adapter, "--base", base, "--dry-run").exit_code == 0
    assert sorted(path.name for path in adapter.iterdir()) == [
        "README.md",
        "adapter_config.json",
        "adapter_model.bin",
    ]


def changed(adapter: Path, path: Path, **fields: Any) -> Path:
    shutil.copytree(adapter, path)
    file = path / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **fields}))
    return path


def test_an_untrained_copy_is_neither_replaced_nor_nameless(zoo: Zoo) -> None:
    base, adapter = zoo.pair("qwen2", "embedding")
    plan = answer(adapter, "--base", base, "--dry-run")["plan"]
    assert "" not in plan["kinds"]
    assert plan["replaced"] == []


def test_keep_tied_says_where_it_can_keep_nothing(zoo: Zoo, tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    base, plain = zoo.pair("qwen2", "plain")
    adapter = tmp_path / "head"
    shutil.copytree(plain, adapter)
    config = json.loads((adapter / "adapter_config.json").read_bytes())
    config["modules_to_save"] = ["lm_head"]
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    with safe_open(base / "model.safetensors", "pt") as file:
        matrix = file.get_tensor("model.embed_tokens.weight")
    tensors = load_file(adapter / "adapter_model.safetensors")
    tensors["base_model.model.lm_head.weight"] = matrix * 2
    save_file(tensors, adapter / "adapter_model.safetensors")
    result = run(adapter, "--base", base, "--dry-run", "--keep-tied")
    assert result.exit_code == 0, result.exception
    assert "--keep-tied changes nothing here: one was trained whole" in result.stderr


def test_another_base_than_the_configuration_names_is_told(zoo: Zoo, tmp_path: Path) -> None:
    base, plain = zoo.pair("llama", "plain")
    adapter = tmp_path / "adapter"
    shutil.copytree(plain, adapter)
    config = json.loads((adapter / "adapter_config.json").read_bytes())
    other = zoo.base("qwen2", "float32")
    config["base_model_name_or_path"] = str(other)
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    told = f"adapter_config.json names another base, {other}; it is merged into {base}"
    assert told in answer(adapter, "--base", base, "--dry-run")["plan"]["notes"]
    notes = answer(plain, "--base", base, "--dry-run")["plan"]["notes"]
    assert not any("another base" in note for note in notes)


def test_which_directory_was_taken_is_told_and_others_make_it_a_question(
    zoo: Zoo, tmp_path: Path
) -> None:
    base, adapter = zoo.pair("llama", "plain")
    run_folder = tmp_path / "run"
    shutil.copytree(adapter, run_folder / "final")
    story = run(run_folder, "--base", base, "--dry-run").stderr
    assert f"Merge {run_folder / 'final'} into {base}" in story
    shutil.copytree(base, run_folder / "whole")
    error = failure(run_folder, "--base", base, "--dry-run")
    assert (error.id, "whole" in error.message) == ("HT152", True)


def test_an_adapter_that_is_only_on_the_hub_is_to_be_fetched() -> None:
    error = failure("lab/lora@abc", "--dry-run")
    assert error.id == "HT112"
    assert error.next.startswith("hf download lab/lora --revision abc --local-dir lora")


def test_a_second_merge_is_called_a_check(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.pair("llama", "plain")
    arguments = (adapter, "--base", base, "-o", tmp_path / "out", "--no-talk")
    assert "✓ merged  " in run(*arguments).stderr
    story = run(*arguments).stderr
    assert "✓ as merged before: every file has the digest" in story
    assert "✓ merged  " not in story


def test_an_answer_of_nothing_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    spoken = {"tokens": [2], "text": " ", "prompt": "Hi", "findings": [], "dtype": "float32"}
    view.tell(Output(), spoken, "merge")
    story = capsys.readouterr().err
    assert "! loads   and answered 'Hi' with nothing to read" in story
    assert "✓" not in story


def test_no_alpha_in_a_trainers_step_names_ingest(zoo: Zoo, tmp_path: Path) -> None:
    base, plain = zoo.pair("llama", "plain")
    adapter = tmp_path / "lora_adapter"
    shutil.copytree(plain, adapter)
    config = json.loads((adapter / "adapter_config.json").read_bytes())
    (adapter / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 0}))
    error = failure(adapter, "--base", base, "--dry-run")
    assert error.id == "HT116"
    assert error.next == f"hubtools ingest {adapter} --lora-alpha ALPHA -o OUT, then merge OUT"
