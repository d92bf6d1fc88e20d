from __future__ import annotations

import json
from pathlib import Path

import pytest
from evaluation_support import first_right
from scripted_server import fails, says, serving

from hubtools.cli.failure import run
from hubtools.cli.main import cli


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def hubtools(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = run(cli, ["evaluate", *argv])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_figures_with_their_interval_and_the_run_found_again(
    words: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(first_right(3)) as (url, requests):
        asked = ("--suite", str(words), "--endpoint", url, "--model", "acme/mini")
        first = hubtools(capsys, *asked)
        assert len(requests) == 24
        second = hubtools(capsys, *asked)
        assert len(requests) == 24
    assert (
        first[:2]
        == second[:2]
        == (
            0,
            "checkpoint\tsuite\tem\tem 95%\tf1\tf1 95%\tn\tfailed\n"
            "acme--mini\twords\t0.125\t0.043–0.310\t0.125\t0.043–0.310\t24\t0\n",
        )
    )
    assert "asked for acme/mini, served served-name · seed 0" in first[2]
    assert "✓ kept in evaluations/acme--mini/words/1" in first[2]


def test_json_has_the_record_the_intervals_and_its_file(
    words: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(first_right(3)) as (url, _):
        code, out, _ = hubtools(
            capsys,
            *("--suite", str(words), "--endpoint", url, "--model", "m", "-o", "runs", "--json"),
        )
    answer = json.loads(out)
    assert (code, answer["schema"], answer["failed"]) == (0, "hubtools.evaluate/2", [])
    (data,) = answer["runs"]
    assert data["path"] == "runs/words/1/run.json"
    assert data["metrics"]["em"]["k"] == 3
    assert data["metrics"]["em"]["interval"]["method"] == "Wilson"
    assert {"protocol", "protocol_id", "weights", "samples_sha256", "seed", "engine"} <= data.keys()


def test_quiet_prints_the_records_path(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(first_right(3)) as (url, _):
        code, out, err = hubtools(
            capsys,
            *("--suite", str(words), "--endpoint", url, "--model", "m", "-o", "runs", "-q"),
        )
    assert (code, out, err) == (0, "runs/words/1/run.json\n", "")


def test_failures_are_said(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def script(question: str, *_: object):  # type: ignore[no-untyped-def]
        return fails(400) if "word 7" in question else says("w1")

    with serving(script) as (url, _):
        code, out, err = hubtools(
            capsys, "--suite", str(words), "--endpoint", url, "--model", "m", "-o", "runs"
        )
    assert code == 0
    assert out.endswith("\t23\t1\n")
    assert "! 1 of 24 questions got no answer and are not scored" in err


@pytest.mark.parametrize(
    ("argv", "words_said"),
    [
        (("run",), "Name a checkpoint directory, or a server with --endpoint."),
        (("--endpoint", "http://127.0.0.1:1/v1"), "--endpoint and --model go together."),
        ((".", "--model", "m"), "--endpoint and --model go together."),
        ((".", "--endpoint", "http://127.0.0.1:1/v1", "--model", "m"), "name no directory"),
        ((".", "--suite", "short_q"), "did you mean 'short_qa'?"),
        ((".", "--suite", "nothing_like_it"), "or tau2_airline, or lm_eval:TASK"),
        ((".", "--dtype", "int8"), "int8"),
    ],
)
def test_wrong_usage_is_exit_2_and_leaves_nothing(
    argv: tuple[str, ...], words_said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if "--suite" in argv:
        (tmp_path / "model.safetensors").write_bytes(b"")
    before = sorted(tmp_path.rglob("*"))
    code, out, err = hubtools(capsys, *argv)
    assert (code, out) == (2, "")
    assert words_said in err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_without_safetensors_is_exit_3(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = hubtools(capsys, ".")
    assert code == 3
    assert "HT409" in err


def test_an_adapter_on_an_engine_that_cannot_serve_it_is_told_by_the_plan(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, file in (("base", "config.json"), ("lora", "adapter_config.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
        (tmp_path / name / "model.safetensors").write_bytes(b"")
    argv = ("base", "--adapter", "lora", "--suite", "lm_eval:arc_easy", "--dry-run")
    code, _, err = hubtools(capsys, *argv)
    assert (code, "HT439" in err) == (2, True)
    assert '[evaluation] engine = "vllm"' in err


def test_a_weights_digest_that_is_none_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "results.json").write_text("{}")
    code, _, err = hubtools(capsys, "import", "results.json", "--member", "m", "--weights", "abc")
    assert code == 2
    assert "64 hex digits" in err
