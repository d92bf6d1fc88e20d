"""Whom the command measures: names of checkpoints, adapters, and what is no directory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from evaluation_support import first_right
from scripted_server import serving

from hubtools.cli.evaluate_targets import names_of, targets_of
from hubtools.cli.failure import run
from hubtools.cli.main import cli
from hubtools.evaluation.identity import other_base
from hubtools.evaluation.spec import Engine, Target


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def hubtools(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = run(cli, ["evaluate", *argv])
    said = capsys.readouterr()
    return code, said.out, said.err


def checkpoint(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(str(folder).encode())
    (folder / "config.json").write_text("{}")
    return folder


def test_names_are_as_short_as_they_can_be_and_never_the_same() -> None:
    folders = [Path("/c/a/x/m"), Path("/c/b/x/m"), Path("/c/a/y/m"), Path("/c/n")]
    assert names_of(folders) == ["a--x--m", "b--x--m", "y--m", "n"]
    assert names_of([Path("/a/m"), Path("/a/m/m")]) == ["a--m", "m--m"]


def test_a_folder_that_is_named_twice_is_one_checkpoint() -> None:
    a, b = checkpoint(Path("runs/a")), checkpoint(Path("runs/b"))
    targets = targets_of((b, a, Path("runs/../runs/b")), (), Engine())
    assert [(target.member, target.model) for target in targets] == [("b", b), ("a", a)]


@pytest.mark.parametrize("name", ["..", ".", "///", "a\nb", "m" * 300, "a\\b"])
def test_a_servers_model_that_is_no_name_of_a_folder_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = hubtools(capsys, "--endpoint", "http://127.0.0.1:9/v1", "--model", name)
    assert code == 2
    assert "cannot be the name of a folder" in err
    assert list(tmp_path.iterdir()) == []


def test_an_adapter_in_place_of_a_model_is_told_and_the_reverse(
    tiny_adapter: Path, tiny_chat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = hubtools(capsys, str(tiny_adapter))
    assert (code, "HT485" in err) == (3, True)
    assert f"next: hubtools evaluate BASE --adapter {tiny_adapter}" in err
    code, _, err = hubtools(capsys, str(tiny_chat), "--adapter", str(tiny_chat))
    assert (code, "HT485" in err) == (3, True)


def test_with_adapters_the_base_is_said_to_be_left_out(
    words: Path, tiny_adapter: Path, tiny_chat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = (str(tiny_chat), "--adapter", str(tiny_adapter), "--suite", str(words), "--dry-run")
    code, out, err = hubtools(capsys, *argv, "--adapter", str(tiny_adapter))
    assert (code, len(out.splitlines())) == (0, 2), "one adapter, named twice"
    assert f"the base {tiny_chat} is not evaluated by itself" in err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("acme/Mini-1",), "next: hf download acme/Mini-1 --local-dir Mini-1"),
        (("tabel",), "next: hubtools evaluate table --help"),
        ((".", "--seed", "0,1"), "repeat the option, --seed 0 --seed 1"),
        (("nowhere",), "'nowhere' does not exist"),
    ],
)
def test_what_was_meant_is_guessed(
    argv: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = hubtools(capsys, *argv)
    assert code == 2
    assert says in err


def test_a_servers_run_that_is_shown_again_says_that_nothing_was_asked(
    words: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(first_right(3)) as (url, requests):
        argv = ("--suite", str(words), "--endpoint", url, "--model", "m")
        assert "shown again" not in hubtools(capsys, *argv)[2]
        assert "1 kept runs are shown again, the server was not asked" in hubtools(capsys, *argv)[2]
        assert len(requests) == 24


def test_an_adapter_of_another_base_is_a_finding(tmp_path: Path) -> None:
    model, other = checkpoint(tmp_path / "SmolLM2-135M"), checkpoint(tmp_path / "b")
    adapter = tmp_path / "adapter"
    adapter.mkdir()

    def found(named: str | None) -> list[str]:
        said = json.dumps({"base_model_name_or_path": named})
        (adapter / "adapter_config.json").write_text(said)
        return [finding.id for finding in other_base(Target("m", "", model, adapter))]

    same = shutil.copytree(model, tmp_path / "copy")
    for named in ("acme/SmolLM2-135M", str(model), str(same), None, ""):
        assert found(named) == [], named
    for named in ("acme/Qwen", str(other)):
        assert found(named) == ["HT446"], named
    (model / "config.json").write_text('{"_name_or_path": "acme/Qwen"}')
    assert found("acme/Qwen") == []
