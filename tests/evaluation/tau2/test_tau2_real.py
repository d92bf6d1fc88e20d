"""The released package for real, between scripted sides: grid, failures, going on, the floor."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_sides import NO_FAULT, USER_OF_2, USER_OF_6, Fault, sides, tells

from hubtools.errors import CheckError
from hubtools.evaluation.bridge import evaluate, find_run
from hubtools.evaluation.proxy import read_calls
from hubtools.evaluation.records import read_run
from hubtools.evaluation.spec import Cell, Engine, SuiteOptions, Target
from hubtools.evaluation.tau2 import planning
from hubtools.evaluation.tau2.environment import VARIABLE
from hubtools.evaluation.tau2.floor import MEMBER, run_floor

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("TAU2_PYTHON" not in os.environ, reason="needs τ²-bench: set TAU2_PYTHON"),
]
KEY, USER_KEY = "real-key-of-the-agent", "real-key-of-the-user"


@pytest.fixture(autouse=True)
def _two_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, os.environ["TAU2_PYTHON"])
    monkeypatch.setattr(planning, "TEST_IDS", ("2", "6"))
    monkeypatch.setenv("TAU2_TEST_KEY", KEY)
    monkeypatch.setenv(planning.USER_KEY, USER_KEY)


def cell(out: Path, url: str = "http://127.0.0.1:9/v1", **options: Any) -> Cell:
    engine = Engine("endpoint", url=url, served_name="policy-agent", api_key_env="TAU2_TEST_KEY")
    wishes = SuiteOptions(user=f"{url}#policy-user", trials=2, temperature=0.5, **options)
    return Cell(Target("scripted"), "tau2_airline", engine, 300, out, wishes)


def ran(out: Path, fault: Fault = NO_FAULT, **more: Any) -> tuple[dict[str, Any], list[Any]]:
    with sides(fault) as (url, seen):
        record = evaluate(cell(out, url), log=out / "log", **more)
    return record, seen


def outcomes(record: Mapping[str, Any]) -> dict[tuple[str, int], Any]:
    run = read_run(Path(record["path"]))
    return {(s["item"], s["trial"]): s["scores"] for s in run.iter_samples()}


def _wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _running() -> bool:
    """Whether a process still runs the grid of this test's own environment."""
    script = str(Path(planning.__file__).with_name("grid_child.py")).encode()
    own = str(os.getpid()).encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            mine = b"TAU2_TEST_RUN=" + own in (process / "environ").read_bytes()
            if mine and script in (process / "cmdline").read_bytes():
                return True
    return False


ZERO, ONE = {"success": 0.0}, {"success": 1.0}


def test_a_grid_is_run_recorded_and_found_again(tmp_path: Path) -> None:
    told = []
    record, seen = ran(tmp_path, progress=lambda *event: told.append(event))
    assert outcomes(record) == {("2", 0): ZERO, ("2", 1): ZERO, ("6", 0): ONE, ("6", 1): ONE}
    assert told[-1] == ("evaluate tau2_airline", 4, 4, "samples · 2 succeeded")
    assert record["served"]["model"] == {"policy-agent-2026": 4}
    assert record["protocol"]["user"]["model"] == "policy-user-2026"
    assert record["user_requested"] == "policy-user"
    assert record["terminations"] == {"user_stop": 4}
    assert record["reward_basis"] == {"DB+COMMUNICATE": 4}
    assert record["missing"] == []
    floor = read_run(tmp_path / "tau2_airline" / "2")
    assert (floor.member, floor.suite_identity) == (MEMBER, record["suite"])
    assert floor.metrics["success"]["value"] == 0.5

    asked = [call["body"] for call in seen]
    assert {body["temperature"] for body in asked if body["model"] == "policy-agent"} == {0.5}
    assert {body["temperature"] for body in asked if body["model"] == "policy-user"} == {0.0}
    run = read_run(Path(record["path"]))
    seeds = {(s["item"], s["trial"]): s["extra"]["seed"] for s in run.iter_samples()}
    assert {body["seed"] for body in asked} == set(seeds.values())
    assert seeds["2", 0] == seeds["6", 0] != seeds["2", 1]

    keys = {(c["body"]["model"], c["headers"]["authorization"]) for c in seen}
    assert keys == {("policy-agent", f"Bearer {KEY}"), ("policy-user", f"Bearer {USER_KEY}")}
    for path in filter(Path.is_file, tmp_path.rglob("*")):
        text = path.read_bytes()
        if path.suffix == ".zst":
            text = json.dumps(list(read_calls(path))).encode()
        assert KEY.encode() not in text
        assert USER_KEY.encode() not in text
    assert find_run(cell(tmp_path))["path"] == record["path"]


def test_a_run_that_was_cut_goes_on_with_the_same_seeds(tmp_path: Path) -> None:
    whole, _ = ran(tmp_path)
    folder = Path(whole["path"]).parent
    (folder / "run.json").unlink()
    (folder / "simulations" / "2-1.json").unlink()
    kept = (folder / "simulations" / "6-0.json").read_bytes()
    again, seen = ran(tmp_path)
    assert again["path"] == whole["path"]
    assert outcomes(again) == outcomes(whole)
    assert (folder / "simulations" / "6-0.json").read_bytes() == kept
    assert {USER_OF_6 in json.dumps(call["body"]["messages"]) for call in seen} == {False}
    seed = json.loads((folder / "simulations" / "2-1.json").read_bytes())["simulation"]["seed"]
    assert {call["body"]["seed"] for call in seen} == {seed}


def test_a_kill_loses_what_is_in_flight_alone(tmp_path: Path) -> None:
    def slow(asked: Mapping[str, Any]) -> None:
        time.sleep(0.05)

    command = [sys.executable, "-m", "hubtools", "evaluate", "run", "--suite", "tau2_airline"]
    command += ["--model", "policy-agent", "--concurrency", "1", "--trials", "1", "--json"]
    command += ["--limit", "3"]
    grid = tmp_path / "tau2_airline" / "1" / "simulations"
    with sides(slow) as (url, _):
        command += ["--endpoint", url, "--user", f"{url}#policy-user", "-o", str(tmp_path)]
        env = {**os.environ, "TAU2_TEST_RUN": str(os.getpid())}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, env=env, **quiet)
        _wait(lambda: grid.is_dir() and len(list(grid.glob("*.json"))) >= 2)
        assert _running()
        process.kill()
        process.wait()
        _wait(lambda: not _running())
        kept = {path.name: path.read_bytes() for path in grid.glob("*.json")}
        assert 2 <= len(kept) < 6
        told = subprocess.run(command, capture_output=True, check=True)
        assert all((grid / name).read_bytes() == data for name, data in kept.items())
    record = json.loads((grid.parent / "run.json").read_bytes())
    assert (record["n"], record["failures"]) == (6, 0)
    assert record["metrics"]["success"]["k"] == 3  # as the floor: those that want no change
    assert json.loads(told.stdout)["runs"][0]["path"]


def test_a_fault_of_the_server_is_no_zero_and_is_made_good(tmp_path: Path) -> None:
    def broken(asked: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]] | None:
        hit = asked["model"] == "policy-agent" and USER_OF_6 in json.dumps(asked["messages"])
        return (400, {"error": {"message": "no such thing"}}) if hit else None

    record, _ = ran(tmp_path, broken)
    assert outcomes(record) == {("2", 0): ZERO, ("2", 1): ZERO, ("6", 0): None, ("6", 1): None}
    assert record["failure_kinds"] == {"infrastructure": 2}
    assert record["metrics"]["success"] == {"value": 0.0, "n": 2, "k": 0, "items": 1}
    better, seen = ran(tmp_path, retry_failed=True)
    assert better["path"] != record["path"]
    assert outcomes(better)["6", 0] == outcomes(better)["6", 1] == ONE
    assert {USER_OF_2 in json.dumps(call["body"]["messages"]) for call in seen} == {False}


def test_what_the_agent_wrote_is_its_own_failure_and_scored(tmp_path: Path) -> None:
    function = {"name": "get_user_details", "arguments": "{not json"}
    call = {"id": "1", "type": "function", "function": function}
    spoilt = tells({"role": "assistant", "content": None, "tool_calls": [call]}, "m")

    def fault(asked: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]] | None:
        return (200, spoilt) if asked["model"] == "policy-agent" else None

    record, _ = ran(tmp_path, fault)
    assert outcomes(record) == dict.fromkeys(outcomes(record), ZERO)
    assert record["terminations"] == {"agent_error": 4}
    samples = list(read_run(Path(record["path"])).iter_samples())
    assert all("JSONDecodeError" in sample["extra"]["note"] for sample in samples)


def test_a_customer_who_says_nothing_is_not_the_agents_failure(tmp_path: Path) -> None:
    silent = tells({"role": "assistant", "content": None}, "m")

    def fault(asked: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]] | None:
        return (200, silent) if asked["model"] == "policy-user" else None

    with pytest.raises(CheckError, match="HT406"):
        ran(tmp_path, fault)
    (kept,) = {
        json.loads(path.read_bytes())["kind"]
        for path in (tmp_path / "tau2_airline" / "1" / "simulations").iterdir()
    }
    assert kept == "user"


def test_the_floor_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubtools.evaluation.tau2.floor.TEST_IDS", ("2", "6"))
    record = run_floor(tmp_path, log=tmp_path / "log")
    run = read_run(Path(record["path"]))
    assert (run.member, run.status, run.protocol["backend"]) == (MEMBER, "measured", "policy")
    assert run.metrics["success"]["value"] == 0.5
    assert run.categories["write"]["metrics"]["success"]["value"] == 0.0
    shutil.rmtree(Path(record["path"]).parent / "simulations")
    assert run_floor(tmp_path, log=tmp_path / "log") == record

    planned = planning.plan_of(replace(cell(tmp_path), suite="tau2_airline")).protocol
    assert planned["suite"] == run.protocol["suite"]
