"""Imported results: a record like any other, with what the file does not tell named."""

from __future__ import annotations

from pathlib import Path

from tau2_files import KEYS, RECORDED, recorded, save, save_folder, with_responses

from hubtools.evaluation.protocol import differing_fields
from hubtools.evaluation.records import read_run
from hubtools.evaluation.statistics_trials import pass_at_k, pass_hat_k
from hubtools.evaluation.tau2.importing import import_tau2


def test_the_record_holds_and_names_what_is_missing(tmp_path: Path) -> None:
    record = import_tau2(RECORDED, tmp_path, member="base")
    run = read_run(Path(record["path"]))
    assert (run.suite, run.status, run.n, run.trials) == ("tau2_airline", "external", 4, 2)
    assert run.metrics["success"] == {"value": 0.5, "n": 4, "k": 2, "items": 2}
    assert run.categories["write"]["metrics"]["success"]["value"] == 0.0
    assert run.categories["no-write"]["metrics"]["success"]["value"] == 1.0
    assert {"returned_model", "user.model", "engine", "harness.version"} <= set(run.missing)
    assert run.harness == {"name": "tau2-bench"}  # what it calls its commit is the user's own
    assert run.requested == "openai/policy-agent"
    assert "model" not in run.protocol["user"]
    assert record["served"] == {}
    assert record["terminations"] == {"user_stop": 4}
    assert run.date == recorded()["timestamp"][:10]


def test_models_as_returned_are_in_record_and_protocol(tmp_path: Path) -> None:
    data = with_responses(recorded(), agent="model-a", user="model-u")
    record = import_tau2(save(data, tmp_path / "r.json"), tmp_path / "out", member="base")
    assert record["served"] == {"model": {"model-a": 4}}
    assert record["protocol"]["user"]["model"] == "model-u"
    assert not {"returned_model", "user.model"} & set(record["missing"])


def test_another_user_simulator_is_another_protocol(tmp_path: Path) -> None:
    protocols = []
    for user in ("small", "large"):
        data = with_responses(recorded(), agent="model-a", user=user)
        path = save(data, tmp_path / f"{user}.json")
        protocols.append(import_tau2(path, tmp_path / "out", member="base")["protocol"])
    assert differing_fields(*protocols) == ["user.model"]


def test_no_key_is_written(tmp_path: Path) -> None:
    data = with_responses(recorded(), agent="a", user="u")
    import_tau2(RECORDED, tmp_path / "out", member="base")
    import_tau2(save_folder(data, tmp_path / "folder"), tmp_path / "out", member="base")
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(written) == 7
    assert not any(key.encode() in path.read_bytes() for path in written for key in KEYS)


def test_the_same_results_become_one_run_and_repeats_several(tmp_path: Path) -> None:
    first = import_tau2(RECORDED, tmp_path / "out", member="base")
    assert import_tau2(RECORDED, tmp_path / "out", member="base") == first
    repeat = recorded()
    repeat["simulations"][0]["duration"] = 9.0
    second = import_tau2(save(repeat, tmp_path / "r.json"), tmp_path / "out", member="base")
    assert second["path"] != first["path"]
    assert second["protocol_id"] == first["protocol_id"]


def test_another_loop_is_another_suite(tmp_path: Path) -> None:
    own = import_tau2(RECORDED, tmp_path, member="base")
    other = import_tau2(RECORDED, tmp_path, member="base", loop="verl-recipe")
    assert other["suite"]["id"] == "tau2_airline@verl-recipe"
    assert differing_fields(own["protocol"], other["protocol"]) == ["agent.kind", "suite.id"]


def test_pass_hat_and_pass_at_are_not_the_same(tmp_path: Path) -> None:
    """The package writes pass^k under the name `pass_at_k`."""
    data = recorded()
    data["simulations"][0]["reward_info"]["reward"] = 1.0
    data["simulations"][2]["reward_info"]["reward"] = 0.0
    rewards = {(s["task_id"], s["trial"]): s["reward_info"]["reward"] for s in data["simulations"]}
    mixed = sum(len({rewards[task, 0], rewards[task, 1]}) == 2 for task in ("2", "6"))
    record = import_tau2(save(data, tmp_path / "r.json"), tmp_path / "out", member="base")
    grid = read_run(Path(record["path"])).grids["success"]
    assert pass_at_k(grid, 2).value - pass_hat_k(grid, 2).value == mixed / 2 > 0
