"""Runs that were killed, failed in part, or are scored anew: what is kept and what is asked."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from evaluation_support import cell, first_right
from scripted_server import fails, says, serving
from tiny_chat import write_suite

from hubtools.errors import CheckError
from hubtools.evaluation.bridge import evaluate, find_run, planned_protocol, rescore
from hubtools.evaluation.records import read_run
from hubtools.evaluation.spec import SuiteOptions


def ask(suite: Path | str, url: str, out: Path, **more: Any) -> dict[str, Any]:
    how = {name: more.pop(name) for name in ("again", "retry_failed") if name in more}
    return evaluate(cell(suite, out, url=url, **more), log=out / "log", **how)


def samples(record: dict[str, Any]) -> bytes:
    return Path(record["path"]).with_name("samples.jsonl").read_bytes()


def test_a_run_killed_at_random_moments_ends_like_one_that_was_not(
    words: Path, tmp_path: Path
) -> None:
    """kill -9 of parent and child, as soon as some answers are there, three times over."""
    options = SuiteOptions(trials=4, temperature=0.7)

    def script(question: str, attempt: int, _: object) -> Any:
        time.sleep(0.02)
        return fails(400, "never") if "word 7?" in question else first_right(9)(question)

    draw = random.Random(4)
    with serving(script) as (url, requests):
        wanted = cell(words, tmp_path / "killed", url=url, options=options, concurrency=3)
        code = (
            "from pathlib import Path; from hubtools.evaluation.bridge import evaluate;"
            "from hubtools.evaluation.spec import cell_from_json;"
            f"evaluate(cell_from_json({wanted.to_json()!r}), log=Path({str(tmp_path / 'log')!r}))"
        )
        for _ in range(3):
            asked = len(requests)
            child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
            while len(requests) < asked + draw.randrange(2, 25) and child.poll() is None:
                time.sleep(0.005)
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        assert not (tmp_path / "killed" / "words" / "1" / "run.json").exists()
        killed = ask(words, url, tmp_path / "killed", options=options, concurrency=3)
        assert len(requests) <= 96 + 3 * 3, "more was asked again than was in flight"
        whole = ask(words, url, tmp_path / "whole", options=options, concurrency=3)
    assert killed["path"].endswith("words/1/run.json")
    assert samples(killed) == samples(whole)
    assert (killed["failures"], killed["failure_kinds"]) == (4, {"refused": 4})
    assert read_run(Path(killed["path"])).trials == 4


def test_each_call_has_a_seed_of_its_own_and_the_same_one_next_time(
    words: Path, tmp_path: Path
) -> None:
    options = SuiteOptions(limit=3, trials=2, temperature=1.0)
    with serving(first_right(3)) as (url, requests):
        ask(words, url, tmp_path / "a", options=options)
        first = sorted((r["messages"][0]["content"], r["seed"]) for r in requests)
        ask(words, url, tmp_path / "b", options=options)
        second = sorted((r["messages"][0]["content"], r["seed"]) for r in requests[6:])
        ask(words, url, tmp_path / "c", options=options, seed=1)
        third = sorted((r["messages"][0]["content"], r["seed"]) for r in requests[12:])
    assert first == second
    assert len({seed for _, seed in first}) == 6
    assert not {seed for _, seed in first} & {seed for _, seed in third}


def test_failures_for_want_of_a_server_are_asked_again_when_an_unfinished_run_goes_on(
    words: Path, tmp_path: Path
) -> None:
    """Request 1 to 4 get HTTP 500, then the key is refused: nothing is finished."""
    down = True

    def script(question: str, attempt: int, _: object) -> Any:
        if down and "word 0?" in question:
            return fails(500, retry_after="0")
        if down and "word 5?" in question:
            return fails(401)
        return first_right(24)(question)

    with serving(script) as (url, requests):
        with pytest.raises(Exception, match="HT405"):
            ask(words, url, tmp_path, concurrency=1)
        down, asked = False, len(requests)
        record = ask(words, url, tmp_path, concurrency=1)
    assert (record["n"], record["failures"]) == (24, 0)
    assert len(requests) - asked == 24 - 4


def test_retrying_what_failed_adds_a_run_that_keeps_the_rest(words: Path, tmp_path: Path) -> None:
    down = True

    def script(question: str, attempt: int, _: object) -> Any:
        return fails(400) if down and "word 2?" in question else first_right(24)(question)

    with serving(script) as (url, requests):
        first = ask(words, url, tmp_path)
        before = {p.name: p.read_bytes() for p in Path(first["path"]).parent.iterdir()}
        assert (first["failures"], first["n"]) == (1, 23)
        assert ask(words, url, tmp_path) == first
        down, asked = False, len(requests)
        second = ask(words, url, tmp_path, retry_failed=True)
        assert len(requests) - asked == 1
        assert second["path"].endswith("words/2/run.json")
        assert (second["failures"], second["continues"]) == (0, "1")
        assert ask(words, url, tmp_path, retry_failed=True) == second
    assert {p.name: p.read_bytes() for p in Path(first["path"]).parent.iterdir()} == before
    assert second["protocol_id"] == first["protocol_id"]


def test_a_run_is_found_without_asking_anyone(words: Path, tmp_path: Path) -> None:
    with serving(first_right(3)) as (url, _):
        wanted = cell(words, tmp_path, url=url)
        assert find_run(wanted) is None
        assert list(tmp_path.iterdir()) == []
        record = ask(words, url, tmp_path)
    assert find_run(wanted) == record
    path = Path(record["path"]).with_name("samples.jsonl")
    path.write_bytes(path.read_bytes()[:-5])
    assert find_run(wanted) is None


def test_scoring_again_gives_the_same_and_other_metrics_another_run(
    words: Path, tmp_path: Path
) -> None:
    with serving(first_right(5)) as (url, requests):
        first = ask(words, url, tmp_path / "out", options=SuiteOptions(limit=8, trials=2))
        asked = len(requests)
    same = rescore(Path(first["path"]), suite=str(words))
    assert same["path"] == first["path"], "the same metrics are the same run"
    other = write_suite(tmp_path / "other" / "words", 24, scorers=("em/1", "sub_em/1"))
    again = rescore(Path(first["path"]).parent, suite=str(other))
    assert again["path"] == str(tmp_path / "out" / "words" / "2" / "run.json")
    assert rescore(Path(first["path"]), suite=str(other)) == again
    assert (
        rescore(Path(again["path"]), suite=str(words))["samples_sha256"]
        == (first["samples_sha256"])
    )
    run, before = read_run(Path(again["path"])), read_run(Path(first["path"]))
    assert list(run.metrics) == ["em", "sub_em"]
    assert run.metrics["em"] == before.metrics["em"]
    assert run.protocol_id != before.protocol_id
    assert (again["rescored"], again["engine"], run.seed) == ("1", first["engine"], before.seed)
    assert len(requests) == asked
    wanted = cell(other, tmp_path / "out", url=url, options=SuiteOptions(limit=8, trials=2))
    assert planned_protocol(wanted) == run.protocol
    assert find_run(wanted) == again


def test_scoring_again_is_refused_where_it_would_not_be_the_same_run(
    words: Path, tmp_path: Path
) -> None:
    with serving(first_right(5)) as (url, _):
        record = ask(words, url, tmp_path / "out")
    longer = write_suite(tmp_path / "more" / "words", 25)
    with pytest.raises(CheckError, match=r"HT407.*something else.*items_sha256"):
        rescore(Path(record["path"]), suite=str(longer))
    Path(record["path"]).with_name("responses.jsonl.zst").unlink()
    other = write_suite(tmp_path / "other" / "words", 24, scorers=("sub_em/1",))
    with pytest.raises(CheckError, match="HT420"):
        rescore(Path(record["path"]), suite=str(other))
    assert sorted(path.name for path in (tmp_path / "out" / "words").iterdir()) == [".lock", "1"]


def test_a_part_of_a_suite_is_drawn_by_its_own_seed_and_named(words: Path, tmp_path: Path) -> None:
    with serving(lambda *_: says("w1")) as (url, _):
        few = ask(words, url, tmp_path, options=SuiteOptions(limit=5, sample_seed=3))
    identity = few["protocol"]["suite"]
    assert (few["items"], identity["n"], identity["sample"]["limit"]) == (5, 5, 5)
    asked = [json.loads(line)["item"] for line in samples(few).splitlines()]
    assert asked == identity["sample"]["ids"] == sorted(asked)
    other = planned_protocol(cell(words, tmp_path, url=url, options=SuiteOptions(limit=5)))
    assert other["suite"]["sample"]["ids"] != asked
    assert other["suite"]["ids_sha256"] != identity["ids_sha256"]
