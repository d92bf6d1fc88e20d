"""`hubtools ingest` as a user meets it: story, JSON, exit codes, nothing left behind."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from hubtools.cli.failure import run
from hubtools.cli.main import cli

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


def answer(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> Any:
    """The one object on stdout and the story, held against its schema."""
    assert run(cli, ["ingest", *argv, "--json"]) == code
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 1
    value = json.loads(printed.out)
    name = value["schema"].removeprefix("hubtools.").partition("/")[0]
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    Draft202012Validator(schema).validate(value)
    assert "Traceback" not in printed.err
    return value, printed.err


def test_ingest_and_talk(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    value, story = answer(
        capsys, str(trained / "hsdp2-tied"), "-o", str(out), "--dtype", "bfloat16"
    )
    assert value["talk"]["tokens"]
    assert value["report"]["world_size"] == 4
    assert "verl-fsdp of 4 ranks, step 7: full" in story
    assert "F32 → BF16" in story
    assert "lm_head.weight is not written: it is tied" in story
    assert sorted(value["files"]) == sorted(file.name for file in out.iterdir())


def test_a_dry_run_writes_nothing(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = str(trained / "fsdp2-moe")
    value, story = answer(capsys, run_dir, "--dry-run", "--dtype", "bfloat16")
    assert value["dry_run"] is True
    assert "rounded_elements" not in value["report"]
    assert "transformers' Qwen3MoeForCausalLM" in story
    assert os.listdir(tmp_path) == []


def test_an_adapter_is_not_loaded(
    tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [str(tuned), "-o", str(tmp_path / "out")]
    value, story = answer(capsys, *argv, code=3)
    assert value["error"]["id"] == "HT172"
    assert not (tmp_path / "out").exists()
    value, story = answer(capsys, *argv, "--lora-alpha", "16")
    assert value["talk"] is None
    assert value["report"]["kind"] == "adapter"
    assert "merge or release it" in story


@pytest.mark.parametrize(
    ("more", "code", "id"),
    [([], 3, "HT170"), (["--dtype", "int4"], 2, "HT001"), (["--base", "nowhere"], 2, "HT121")],
)
def test_refusals(
    trained: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    code: int,
    id: str,
) -> None:
    argv = [str(trained / "fsdp1"), "-o", str(tmp_path / "out"), *more]
    value, _ = answer(capsys, *argv, code=code)
    assert value["error"]["id"] == id
    assert not (tmp_path / "out").exists()


def test_the_way_out_of_a_choice_is_the_users_own_command(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = str(trained / "fsdp1"), str(tmp_path / "out")
    value, _ = answer(capsys, run, "-o", out, code=3)
    lossy, exact = value["error"]["next"], value["error"]["detail"][0]
    assert lossy.startswith(f"hubtools ingest {run} -o {out} --dtype ")
    assert exact.partition(": ")[2].startswith(f"hubtools ingest {run} -o {out} --dtype ")
    answer(capsys, *exact.partition("hubtools ingest ")[2].split(), "--no-talk")


def test_out_is_needed(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value, _ = answer(capsys, str(trained / "fsdp1"), code=2)
    assert "--dry-run" in value["error"]["message"]
