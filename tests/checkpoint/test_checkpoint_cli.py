"""`hubtools merge` as a user meets it: data on stdout, the story on stderr, errors with a fix."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tiny_models import save_tokenizer

from hubtools.checkpoint.merging.merge import merge
from hubtools.cli.merge import command
from hubtools.errors import CheckError, HubtoolsError


def run(*argv: str | Path) -> Result:
    return CliRunner().invoke(command, [str(part) for part in argv])


def test_plan_merge_and_words(made: Any, tmp_path: Path) -> None:
    base, adapter = made("qwen2")
    out = tmp_path / "out"
    result = run(adapter, "--base", base, "-o", out)
    assert result.exit_code == 0, result.exception
    assert result.stdout == f"{out}\n"
    story = result.stderr
    assert f"Merge {adapter} into {base}" in story
    assert (
        "  6 of 27 tensors change (52.0 kB of 168.8 kB), rank 8, scaling 3, engine numpy" in story
    )
    assert re.search(r"✓ merged  float32, rounded once .*; 9\d\.\d% of the touched elements", story)
    assert re.search(r"  sha256 [0-9a-f]{64}  model.safetensors\n", story)
    assert "✓ talks   '[user] What is the capital of France?\\n[assistant] ' → " in story


def test_json_is_one_object(made: Any, tmp_path: Path) -> None:
    base, adapter = made("qwen2")
    out = tmp_path / "out"
    result = run(adapter, "--base", base, "-o", out, "--no-talk", "--json")
    data = json.loads(result.stdout)
    assert data["schema"] == "hubtools.merge/1"
    assert data["out"] == str(out)
    assert data["talk"] is None
    known = merge(adapter, base, out, log=tmp_path / "log")
    assert {name: data[name] for name in known} == known


def test_a_dry_run_writes_nothing(made: Any, tmp_path: Path) -> None:
    base, adapter = made("qwen2")
    result = run(adapter, "--base", base, "-o", tmp_path / "out", "--dry-run", "--json")
    assert json.loads(result.stdout)["plan"]["changed_tensors"] == 6
    assert list(tmp_path.iterdir()) == []


def test_quiet_prints_the_place_alone(made: Any, tmp_path: Path) -> None:
    base, adapter = made("qwen2")
    result = run(adapter, "--base", base, "-o", tmp_path / "out", "--no-talk", "-q")
    assert (result.stdout, result.stderr) == (f"{tmp_path / 'out'}\n", "")


@pytest.mark.parametrize(
    ("base", "id"), [("nowhere", "HT121"), ("owner/name", "HT121"), ("adapter", "HT115")]
)
def test_errors_reach_the_shell_as_they_are(made: Any, tmp_path: Path, base: str, id: str) -> None:
    adapter = made()[1]
    result = run(adapter, "--base", adapter if base == "adapter" else base, "-o", tmp_path / "out")
    assert isinstance(result.exception, HubtoolsError)
    assert result.exception.id == id
    assert list(tmp_path.iterdir()) == []


def test_a_result_that_should_not_be_published_ends_as_an_error(
    broken: tuple[Path, Path], tmp_path: Path
) -> None:
    base, adapter = broken
    save_tokenizer(base, "{{ nothing.at.all }}")
    result = run(adapter, "--base", base, "-o", tmp_path / "out", "--json")
    assert isinstance(result.exception, CheckError)
    assert result.exception.id == "HT135"
    assert result.stdout == ""
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_without_a_place_there_is_a_usage_error(made: Any) -> None:
    base, adapter = made()
    result = run(adapter, "--base", base)
    assert result.exit_code == 2
    assert "--out" in result.stderr
