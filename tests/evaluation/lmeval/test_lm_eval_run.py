"""lm-eval for real over scripted servers: what fails is counted, what was answered is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lm_tasks import write_tasks
from scripted_server import fails, says, serving

from hubtools.errors import CheckError, HubtoolsError, UsageError
from hubtools.evaluation.bridge import evaluate, find_run
from hubtools.evaluation.lmeval.environment import VARIABLE
from hubtools.evaluation.proxy import read_calls
from hubtools.evaluation.records import read_run
from hubtools.evaluation.spec import Cell, Engine, SuiteOptions, Target

KEY = "sk-a-key-that-nobody-may-see"


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed here")
    return write_tasks(tmp_path_factory.mktemp("lm") / "tasks")


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LM_TEST_KEY", KEY)
    monkeypatch.setenv(VARIABLE, sys.executable)


def cell(url: str, tasks: Path, out: Path, **options: Any) -> Cell:
    engine = Engine("endpoint", url=url, served_name="m", api_key_env="LM_TEST_KEY", concurrency=4)
    suite = f"lm_eval:our_words@{tasks}"
    return Cell(Target("m"), suite, engine, 0, out, SuiteOptions(**options))


def number(question: str) -> int:
    return int(question.rpartition("word ")[2].rstrip("?"))


def outcomes(record: dict[str, Any]) -> dict[str, Any]:
    run = read_run(Path(record["path"]))
    return {s["item"]: s["failure_kind"] or s["scores"]["exact_match"] for s in run.iter_samples()}


def test_one_broken_request_and_one_empty_reply_fail_two_samples_and_not_the_run(
    tasks: Path, tmp_path: Path
) -> None:
    headers: list[dict[str, str]] = []

    def script(question: str, attempt: int, seen: dict[str, str]) -> Any:
        headers.append(seen)
        n = number(question)
        if n == 7:
            return fails(400, "this one never works")
        if n == 6:
            return says(None)
        if n == 5 and attempt == 1:
            return fails(500, "once")
        return says(f"w{n}" if n < 4 else "no")

    with serving(script) as (url, asked):
        wanted = cell(url, tasks, tmp_path / "runs")
        record = evaluate(wanted, log=tmp_path / "log")
        count = len(asked)
        assert find_run(wanted) == record
        assert evaluate(wanted, log=tmp_path / "log") == record
        assert len(asked) == count
    assert outcomes(record) == {
        **{f"our_words/{n}": 1.0 for n in range(4)},
        **{f"our_words/{n}": 0.0 for n in (4, 5)},
        "our_words/6": "no_text",
        "our_words/7": "infrastructure",
    }
    assert record["metrics"] == {"exact_match": {"value": 4 / 6, "n": 6, "items": 6, "k": 4}}
    assert (record["suite"]["id"], record["harness"]["name"]) == ("lm_eval-our_words", "lm_eval")
    assert record["returned"] == {"model": ["served-name"], "system_fingerprint": ["fp-1"]}
    assert {seen["authorization"] for seen in map(_lower, headers)} == {f"Bearer {KEY}"}
    calls = list(read_calls(Path(record["path"]).with_name("responses.jsonl.zst")))
    assert len(calls) == 8
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), file


def _lower(headers: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def test_a_killed_run_goes_on_with_the_answers_that_it_has(tasks: Path, tmp_path: Path) -> None:
    held: list[bool] = [True]

    def script(question: str, *_: Any) -> Any:
        while held[0] and number(question) >= 4:
            time.sleep(0.05)
        return says(f"w{number(question)}")

    with serving(script) as (url, asked):
        wanted = cell(url, tasks, tmp_path / "runs")
        job = json.dumps(wanted.to_json())
        code = (
            "import json, sys; from pathlib import Path\n"
            "from hubtools.evaluation.bridge import evaluate\n"
            "from hubtools.evaluation.spec import cell_from_json\n"
            f"evaluate(cell_from_json(json.loads({job!r})), log=Path({str(tmp_path / 'log')!r}))\n"
        )
        process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        _until(tmp_path, 4)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        first = len(asked)
        held[0] = False
        record = evaluate(wanted, log=tmp_path / "log")
        again = [number(body["messages"][-1]["content"]) for body in asked[first:]]
    assert sorted(again) == [4, 5, 6, 7]
    assert record["metrics"]["exact_match"]["k"] == 8


def _until(folder: Path, answers: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for book in folder.rglob("answers.jsonl"):
            if book.read_bytes().count(b"\n") >= answers:
                return
        time.sleep(0.05)
    raise AssertionError("no answers in two minutes")


def test_a_limit_draws_by_seed_and_is_another_protocol(tasks: Path, tmp_path: Path) -> None:
    with serving(lambda question, *_: says(f"w{number(question)}")) as (url, _):
        drawn = evaluate(cell(url, tasks, tmp_path, limit=3, sample_seed=1), log=tmp_path / "log")
    assert (drawn["items"], drawn["n"]) == (3, 3)
    items = list(outcomes(drawn))
    assert items != [f"our_words/{n}" for n in range(3)]
    assert drawn["protocol"]["suite"]["drawn"] == {"limit": 3, "sample_seed": 1}


def test_when_every_request_fails_nothing_is_scored(tasks: Path, tmp_path: Path) -> None:
    with serving(lambda *_: fails(400)) as (url, _), pytest.raises(CheckError) as caught:
        evaluate(cell(url, tasks, tmp_path), log=tmp_path / "log")
    assert caught.value.id == "HT406"
    assert not list(tmp_path.rglob("run.json"))


@pytest.fixture
def server() -> Iterator[str]:
    with serving(lambda *_: says("x")) as (url, _):
        yield url


def test_an_unknown_task_is_told_before_anything_is_asked(
    server: str, tasks: Path, tmp_path: Path
) -> None:
    wanted = cell(server, tasks, tmp_path)
    unknown = Cell(
        wanted.target, f"lm_eval:our_wrods@{tasks}", wanted.engine, 0, tmp_path, SuiteOptions()
    )
    with pytest.raises(UsageError) as caught:
        evaluate(unknown, log=tmp_path / "log")
    assert caught.value.id == "HT452"
    assert "our_wrods" in caught.value.message


@pytest.mark.parametrize(
    ("suite", "options", "id"),
    [
        ("lm_eval:", {}, "HT450"),
        ("lm_eval:a,a", {}, "HT450"),
        ("lm_eval:a@/not/there", {}, "HT454"),
        ("lm_eval:a", {"nudge": True}, "HT453"),
        ("lm_eval:a", {"trials": 4}, "HT453"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_once(
    suite: str, options: dict[str, Any], id: str, tmp_path: Path
) -> None:
    engine = Engine("endpoint", url="http://127.0.0.1:9/v1", served_name="m")
    with pytest.raises(HubtoolsError) as caught:
        find_run(Cell(Target("m"), suite, engine, 0, tmp_path, SuiteOptions(**options)))
    assert caught.value.id == id


def test_without_an_environment_the_way_to_one_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "python"))
    engine = Engine("endpoint", url="http://127.0.0.1:9/v1", served_name="m")
    with pytest.raises(HubtoolsError) as caught:
        find_run(Cell(Target("m"), "lm_eval:a", engine, 0, tmp_path, SuiteOptions()))
    assert (caught.value.id, caught.value.exit_code) == ("HT451", 1)
    assert "make lm-eval-env" in caught.value.next
