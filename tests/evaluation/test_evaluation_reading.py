"""`evaluate show | samples | table | rescore` on runs that are there, unfinished or damaged."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from made_runs import column, made_run

from hubtools.cli.failure import run
from hubtools.cli.main import cli
from hubtools.evaluation.unfinished import unfinished_at


def hubtools(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = run(cli, ["evaluate", *argv])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_an_unfinished_run_is_said_and_how_far_it_is(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (runs["mi"] / "run.json").unlink()
    (begun,) = unfinished_at(runs["mi"].parent)
    assert (begun.folder, begun.answered, begun.samples) == (runs["mi"], 24, 24)
    code, _, err = hubtools(capsys, "show", str(runs["mi"]))
    assert code == 2
    assert "HT481" in err
    assert f"{runs['mi']}: unfinished, 24 of 24 answers kept" in err
    code, out, err = hubtools(capsys, "table", str(runs["mi"].parent), "--baseline", "base")
    assert code == 0
    assert "r2e" in out
    assert "unfinished, 24 of 24 answers kept; the same evaluate command goes on with it" in err


def test_a_damaged_run_does_not_take_the_table_from_the_others(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (runs["mi"] / "run.json").write_text("[" * 100_000)
    code, out, err = hubtools(capsys, "table", str(runs["mi"].parent))
    assert code == 0
    assert "r2e" in out
    assert "\nmi\t" not in out
    assert f"! left out: {runs['mi'] / 'run.json'}: " in err
    assert hubtools(capsys, "show", str(runs["mi"]))[0] == 3


def test_a_folder_with_an_odd_number_as_its_name_is_read(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    odd = runs["mi"].rename(runs["mi"].with_name("²"))
    assert hubtools(capsys, "show", str(odd.parent))[0] == 0


def test_samples_show_what_was_asked_and_one_in_full(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = hubtools(capsys, "samples", str(runs["mi"]), "-n", "1")
    head, row = (line.split("\t") for line in out.splitlines())
    assert (code, head[-1]) == (0, "asked")
    assert "word 0?" in row[-1]
    assert "an answer in full: --item w-00" in err
    code, out, _ = hubtools(capsys, "samples", str(runs["mi"]), "--item", "w-07")
    told = dict(line.split("\t") for line in out.splitlines())
    assert (told["item"], told["written"], told["em"]) == ("w-07", "nothing", "0.00")
    first = json.loads((runs["mi"] / "samples.jsonl").read_bytes().splitlines()[7])
    assert told["asked"] == " ".join(first["messages"][-1]["content"].split())


@pytest.mark.parametrize(
    ("argv", "said"),
    [(("--category", "nope"), "no category 'nope'"), (("--item", "w-99"), "no question w-99")],
)
def test_what_the_run_does_not_have_is_exit_2(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], said: str
) -> None:
    code, out, err = hubtools(capsys, "samples", str(runs["mi"]), *argv)
    assert (code, out) == (2, "")
    assert said in err


def test_scoring_again_by_the_same_rules_is_unchanged(
    runs: dict[str, Path],
    words: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    only = tmp_path / "only"
    only.mkdir()
    folder = runs["mi"].rename(only / "1")
    code, _, err = hubtools(capsys, "rescore", str(folder), "--suite", str(words))
    assert code == 0
    assert f"✓ unchanged: {folder} has it already" in err
    assert [path.name for path in only.iterdir() if path.is_dir()] == ["1"]


def test_half_a_surrogate_pair_is_shown_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = made_run(tmp_path, {"em": column(1.0, 0.0)}, member="half \ud83d")
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", stdout)
    assert run(cli, ["evaluate", "show", str(made.path)]) == 0
    stdout.flush()
    assert b"half \\ud83d" in stdout.buffer.getvalue()
