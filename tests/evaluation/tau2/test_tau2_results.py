"""Results of both layouts are read whole, or refused; failures are never a quiet 0."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tau2_files import KEYS, RECORDED, recorded, save, save_folder, with_responses

from hubtools.errors import CheckError
from hubtools.evaluation.tau2.airline import READ, WRITE
from hubtools.evaluation.tau2.results import is_results, read_results

SHARED = Path(__file__).parents[3].parent / "shared" / "cases" / "evaluation" / "tau2-sample.json"


def scores(path: Path) -> list[tuple[str, int, Any]]:
    return [(s["item"], s["trial"], s["scores"]) for s in read_results(path).samples()]


def test_the_recorded_run_is_read() -> None:
    assert scores(RECORDED) == [
        ("2", 0, {"success": 0.0}),
        ("2", 1, {"success": 0.0}),
        ("6", 0, {"success": 1.0}),
        ("6", 1, {"success": 1.0}),
    ]
    first = next(iter(read_results(RECORDED).samples()))
    assert first["category"] == WRITE
    assert first["messages"][0]["role"] == "assistant"
    assert first["messages"][-1]["role"] == "user"
    call = first["transcript"][0]["tool_calls"][0]["function"]
    assert call == {"name": "get_user_details", "arguments": '{"user_id": "noah_muller_9847"}'}
    assert first["transcript"][1]["role"] == "tool"
    assert first["extra"]["reward_basis"] == ["DB", "COMMUNICATE"]
    assert first["extra"]["seed"] == 626729
    assert first["turns"] == 2  # the greeting is not the model's


def test_a_task_passes_although_an_action_check_failed() -> None:
    """ACTION is not in the reward's basis."""
    data = recorded()
    passed = next(s for s in data["simulations"] if s["task_id"] == "6")
    assert not all(check["action_match"] for check in passed["reward_info"]["action_checks"])
    assert passed["reward_info"]["reward"] == 1.0


@pytest.mark.skipif(not SHARED.is_file(), reason="the shared cases are not beside this checkout")
def test_the_shared_case_is_read_without_its_key() -> None:
    rewards = [s["reward_info"]["reward"] for s in json.loads(SHARED.read_bytes())["simulations"]]
    assert rewards == [1.0, 0.0, 0.0, 1.0]
    results = read_results(SHARED)
    assert sum(s["scores"]["success"] for s in results.samples()) == 2
    assert "dummy" not in json.dumps(list(results.samples()))


def test_no_credential_gets_into_a_sample() -> None:
    assert all(key in RECORDED.read_text() for key in KEYS)
    data = recorded()
    data["simulations"][0]["messages"][1]["content"] = f"see http://u:{KEYS[0]}@host/"
    results = list(read_results(RECORDED).samples())
    assert not any(key in json.dumps(results) for key in KEYS)


def test_the_model_is_known_from_whole_responses_alone(tmp_path: Path) -> None:
    data = with_responses(recorded(), agent="model-a", user="model-u")
    new, old = read_results(save(data, tmp_path / "new.json")), read_results(RECORDED)
    assert (new.layout, new.user_models()) == ("response", "model-u")
    assert {s["served"]["model"] for s in new.samples()} == {"model-a"}
    assert (old.layout, old.user_models()) == ("choice", "")
    assert {s["served"] for s in old.samples()} == {None}  # not the name that was asked for


def test_the_folder_form_reads_like_the_file(tmp_path: Path) -> None:
    data = with_responses(recorded(), agent="a", user="u")
    file, folder = save(data, tmp_path / "one.json"), save_folder(data, tmp_path / "folder")
    assert list(read_results(folder).samples()) == list(read_results(file).samples())
    assert list(read_results(folder / "results.json").samples())
    next((folder / "simulations").iterdir()).unlink()
    with pytest.raises(CheckError, match="HT468"):
        read_results(folder)


def test_tasks_of_another_release_are_another_suite(tmp_path: Path) -> None:
    data = recorded()
    data["tasks"][0]["evaluation_criteria"]["actions"].pop()
    other = read_results(save(data, tmp_path / "v1.json")).bench.identity()
    same = read_results(RECORDED).bench.identity()
    assert other["tasks_sha256"] != same["tasks_sha256"]
    assert other["ids_sha256"] == same["ids_sha256"]
    assert other["categories"] == {READ: 2}


def test_spelling_out_a_default_changes_nothing(tmp_path: Path) -> None:
    data = recorded()
    for task in data["tasks"]:
        task["evaluation_criteria"].pop("reward_basis")
        task["evaluation_criteria"]["env_assertions"] = None
        task["user_scenario"].pop("persona")
        task["issues"] = []
    assert (
        read_results(save(data, tmp_path / "x")).bench
        == read_results(save(data, tmp_path / "y")).bench
    )
    assert read_results(tmp_path / "x").bench.identity() == read_results(RECORDED).bench.identity()


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"skipped": True, "reward_info": {"reward": 0.0}, "messages": []}, "infrastructure"),
        ({"termination_reason": "infrastructure_error", "reward_info": None}, "infrastructure"),
        ({"termination_reason": "context_window_exceeded", "messages": None}, "context"),
        ({"reward_info": None}, "infrastructure"),
    ],
)
def test_what_failed_outside_is_no_zero(tmp_path: Path, change: dict[str, Any], kind: str) -> None:
    data = recorded()
    data["simulations"][0] |= change
    task, trial = data["simulations"][0]["task_id"], data["simulations"][0]["trial"]
    samples = list(read_results(save(data, tmp_path / "r.json")).samples())
    (failed,) = [s for s in samples if s["scores"] is None]
    assert (failed["item"], failed["trial"], failed["failure_kind"]) == (task, trial, kind)
    assert failed["failure"]


def test_a_premature_end_is_a_zero_and_says_so(tmp_path: Path) -> None:
    data = recorded()
    note = {"reward": 0.0, "reward_basis": None, "info": {"note": "terminated prematurely"}}
    for simulation in data["simulations"]:
        simulation |= {"termination_reason": "max_steps", "reward_info": note}
    results = read_results(save(data, tmp_path / "r.json"))
    assert {s["scores"]["success"] for s in results.samples()} == {0.0}
    assert {s["truncated"] for s in results.samples()} == {True}
    assert {s["extra"]["note"] for s in results.samples()} == {"terminated prematurely"}
    assert results.terminations() == {"max_steps": 4}


@pytest.mark.parametrize("whole", [False, True])
def test_an_answer_without_tokens_left_is_counted(tmp_path: Path, whole: bool) -> None:
    data = recorded()
    answers = [m for m in data["simulations"][0]["messages"] if m["role"] == "assistant"]
    answers[-1]["raw_data"]["finish_reason"] = "length"
    data = with_responses(data, agent="a", user="u") if whole else data
    samples = read_results(save(data, tmp_path / "r.json")).samples()
    assert sum(sample["truncated"] for sample in samples) == 1


@pytest.mark.parametrize(("reward", "score"), [(1 - 1e-7, 1.0), (0.999, 0.0), (0.5, 0.0)])
def test_success_is_a_reward_of_one(tmp_path: Path, reward: float, score: float) -> None:
    data = recorded()
    for simulation in data["simulations"]:
        simulation["reward_info"]["reward"] = reward
    results = read_results(save(data, tmp_path / "r.json"))
    assert {s["scores"]["success"] for s in results.samples()} == {score}


def _drop(data: dict[str, Any]) -> None:
    data["simulations"].pop()


def _double(data: dict[str, Any]) -> None:
    data["simulations"].append(data["simulations"][0])


def _other_trial(data: dict[str, Any]) -> None:
    data["simulations"][0]["trial"] = 7


def _no_trial(data: dict[str, Any]) -> None:
    data["simulations"][0]["trial"] = None


def _double_task(data: dict[str, Any]) -> None:
    data["tasks"].append(data["tasks"][0])


@pytest.mark.parametrize("spoil", [_drop, _double, _other_trial, _no_trial, _double_task])
def test_the_grid_is_checked(tmp_path: Path, spoil: Callable[[dict[str, Any]], None]) -> None:
    data = recorded()
    spoil(data)
    with pytest.raises(CheckError, match="HT470") as error:
        read_results(save(data, tmp_path / "r.json"))
    assert error.value.next


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"info": {}, "tasks": []}',
        '{"domain": "airline", "metrics": {"pass_at_k": {"1": 0.5}}}',  # the file beside it
        '{"info": {"environment_info": {"domain_name": "airline", "policy": ""},'
        ' "num_trials": 1}, "tasks": [3], "simulations": []}',
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(CheckError, match="HT468"):
        read_results(tmp_path / "r.json")


def _nan(data: dict[str, Any]) -> None:
    data["simulations"][0]["reward_info"]["reward"] = float("nan")


def _no_sides(data: dict[str, Any]) -> None:
    del data["info"]["user_info"]


def _odd_arguments(data: dict[str, Any]) -> None:
    data["info"]["agent_info"]["llm_args"] = ["temperature"]


def _half_a_pair(data: dict[str, Any]) -> None:
    data["info"]["agent_info"]["llm"] = "\ud800"


def _no_date(data: dict[str, Any]) -> None:
    data["timestamp"] = "yesterday"


def _deep(data: dict[str, Any]) -> None:
    nested: Any = []
    for _ in range(600):
        nested = [nested]
    data["simulations"][0]["messages"][0]["content"] = nested


@pytest.mark.parametrize("spoil", [_nan, _no_sides, _odd_arguments, _half_a_pair, _no_date, _deep])
def test_damage_anywhere_is_told(tmp_path: Path, spoil: Callable[[dict[str, Any]], None]) -> None:
    data = recorded()
    spoil(data)
    with pytest.raises(CheckError, match="HT468"):
        read_results(save(data, tmp_path / "r.json"))


def test_a_promise_of_many_trials_costs_nothing(tmp_path: Path) -> None:
    data = recorded()
    data["info"]["num_trials"] = 10**12
    with pytest.raises(CheckError, match="HT470"):
        read_results(save(data, tmp_path / "r.json"))


def test_a_damaged_simulation_is_told_at_once(tmp_path: Path) -> None:
    data = recorded()
    data["simulations"][3]["reward_info"]["reward"] = "much"
    with pytest.raises(CheckError, match="HT468"):
        read_results(save(data, tmp_path / "r.json"))


def test_another_domain_is_refused(tmp_path: Path) -> None:
    data = recorded()
    data["info"]["environment_info"]["domain_name"] = "retail"
    with pytest.raises(CheckError, match="HT469"):
        read_results(save(data, tmp_path / "r.json"))


def test_results_are_told_from_other_files(tmp_path: Path) -> None:
    data = with_responses(recorded(), agent="a", user="u")
    assert is_results(RECORDED)
    assert is_results(save_folder(data, tmp_path / "folder"))
    assert not is_results(save({"results": {}, "config": {}}, tmp_path / "lm_eval.json"))
    assert not is_results(tmp_path)


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CheckError, match="HT468"):
        read_results(tmp_path / "nothing")
