"""The child process: how long a server is waited for, and what is said of damaged answers."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evaluation_support import cell
from scripted_server import says, serving

from hubtools.cli.failure import run
from hubtools.cli.main import cli
from hubtools.evaluation.worker import work


def job(suite: Path, out: Path, url: str, **engine: Any) -> dict[str, Any]:
    asked = cell(suite, out, url=url)
    asked = replace(asked, engine=replace(asked.engine, **engine))
    return {
        **{"cell": asked.to_json(), "folder": str(out / "1"), "about": {}},
        **{"concurrency": 4, "findings": []},
        "server": {"url": url, "served_name": "m", "describe": {}},
    }


def test_a_question_that_hangs_fails_after_the_time_that_was_given(
    words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eval_harness.backends.openai.ATTEMPTS", 1)

    def script(question: str, *_: object) -> Any:
        time.sleep(1.0 if "word 7?" in question else 0.0)
        return says("w1")

    with serving(script) as (url, _):
        work(job(words, tmp_path, url, timeout=0.3), lambda *_: None)
    samples = [
        json.loads(line) for line in (tmp_path / "1" / "samples.jsonl").read_text().splitlines()
    ]
    assert {s["item"]: s["failure"] for s in samples if s["failure"]} == {
        "w-07": "no answer in time"
    }


def test_the_option_is_in_the_job(
    words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["--suite", str(words), "--endpoint", "http://127.0.0.1:9/v1", "--model", "m"]
    more = ["--executor", "slurm", "-o", "runs", "--timeout"]
    assert run(cli, ["evaluate", *asked, *more, "0"]) == 2
    assert run(cli, ["evaluate", *asked, *more, "7"]) == 0
    [file] = tmp_path.glob("runs/slurm/**/jobs/0.json")
    written = json.loads(file.read_text())
    assert written["cells"][0]["engine"]["timeout"] == 7


def test_damaged_answers_are_asked_again_and_said(words: Path, tmp_path: Path) -> None:
    with serving(lambda *_: says("w1")) as (url, requests):
        work(job(words, tmp_path, url), lambda *_: None)
        (tmp_path / "1" / "run.json").unlink()
        responses = tmp_path / "1" / "responses.jsonl.zst"
        raw = bytearray(responses.read_bytes())
        raw[len(raw) // 2] ^= 0xFF
        responses.write_bytes(raw)
        work(job(words, tmp_path, url), lambda *_: None)
    record = json.loads((tmp_path / "1" / "run.json").read_text())
    assert (len(requests), record["n"]) == (25, 24)
    [finding] = record["findings"]
    assert (finding["id"], finding["level"]) == ("HT421", "warning")
    assert finding["message"].startswith("1 places in the kept answers are damaged")
