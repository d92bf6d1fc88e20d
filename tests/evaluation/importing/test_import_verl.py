from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from import_sources import console, generations, raw, take, write_rows

from hubtools.errors import HubtoolsError
from hubtools.evaluation.run_facts import run_facts
from hubtools.evaluation.tables import metric_tables

CORE = "val-core/tau2/airline/reward/mean@4"
BEST = "val-core/tau2/airline/reward/best@4/mean"
SEEDS = {42: {0: 0.275, 20: 0.5625}, 123: {0: 0.375, 20: 0.55}}
"""val@0 and val@20 of two seeds, as the card of an adapter for τ²-bench airline reports them."""


def log_of(folder: Path, seed: int) -> Path:
    path = folder / f"seed{seed}.log"
    path.write_text(console({step: {CORE: value} for step, value in SEEDS[seed].items()}))
    return path


@pytest.mark.parametrize("step", [0, 20])
def test_validations_by_seed_become_repeats_with_both_values(tmp_path: Path, step: int) -> None:
    out = tmp_path / "out"
    runs = [take(log_of(tmp_path, seed), out, step=step, seed=seed) for seed in SEEDS]
    assert [run.metrics["reward_mean@4"]["value"] for run in runs] == [
        SEEDS[seed][step] for seed in SEEDS
    ]
    assert [run.seed for run in runs] == [42, 123]
    assert {run.status for run in runs} == {"reported"}
    assert len({run.protocol_id for run in runs}) == 1
    (table,) = metric_tables(runs)
    shown = " and ".join(f"{SEEDS[seed][step]:.3f}" for seed in SEEDS)
    assert shown in table.rows[0]
    fact = next(f for f in run_facts(runs[0], path_in_facts="run.json") if "reward" in f.id)
    assert (fact.status, fact.spread, fact.n) == ("reported", None, None)


def test_steps_are_other_checkpoints_under_one_protocol(tmp_path: Path) -> None:
    log = log_of(tmp_path, 42)
    with pytest.raises(HubtoolsError, match="HT462") as told:
        take(log, tmp_path / "out")
    assert "step 0, step 20" in told.value.message
    assert told.value.next.endswith("--step 20")
    with pytest.raises(HubtoolsError, match=r"HT462.*none of step 7"):
        take(log, tmp_path / "out", step=7)
    first, last = (take(log, tmp_path / "out", step=step) for step in (0, 20))
    assert first.protocol_id == last.protocol_id
    assert (raw(first)["source"]["step"], raw(last)["source"]["step"]) == (0, 20)


def test_a_bootstrap_of_the_same_answers_is_not_called_pass_at_k(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(console({0: {CORE: 0.3, BEST: 0.6, "val-aux/num_turns/mean": 11.5}}))
    run = take(log, tmp_path / "out")
    assert list(run.metrics) == ["reward_best@4_mean", "reward_mean@4"]
    assert raw(run)["left_out"] == ["val-aux/num_turns/mean"]


def test_metrics_as_json_lines(tmp_path: Path) -> None:
    rows = [
        {"step": 0, "data": {CORE: 0.25, "actor/lr": 1e-6}},
        {"step": 1, "data": {"actor/lr": 1e-6}},
    ]
    run = take(write_rows(tmp_path / "verl.jsonl", rows), tmp_path / "out")
    assert run.metrics == {"reward_mean@4": {"value": 0.25, "reported": True}}


def test_sources_are_told_apart(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(console({0: {"val-core/nq/acc/mean@1": 0.25, "val-core/popqa/acc/mean@1": 0.5}}))
    run = take(log, tmp_path / "out")
    assert {n: m["value"] for n, m in run.metrics.items()} == {
        "nq_acc_mean@1": 0.25,
        "popqa_acc_mean@1": 0.5,
    }


def test_dumped_generations_are_samples_by_prompt_and_trial(tmp_path: Path) -> None:
    rows = generations([[1, 0, 1, 1], [0, 0, 0, 1]])
    run = take(write_rows(tmp_path / "val" / "20.jsonl", rows), tmp_path / "out")
    assert (run.status, run.items, run.trials, run.samples) == ("external", 2, 4, 8)
    assert run.metrics["score"] == {"value": 0.5, "n": 8, "items": 2, "k": 4}
    assert set(run.metrics) == {"score", "acc"}
    assert raw(run)["left_out"] == ["num_turns"]
    grid = run.grids["score"]
    assert grid.scores.tolist() == [[1, 0, 1, 1], [0, 0, 0, 1]]
    assert "failures" in run.missing


def test_a_folder_of_dumps_asks_for_the_step(tmp_path: Path) -> None:
    for step in (0, 20):
        rows = generations([[step / 20] * 4], step)
        write_rows(tmp_path / "val" / f"{step}.jsonl", rows)
    with pytest.raises(HubtoolsError, match="HT462"):
        take(tmp_path / "val", tmp_path / "out")
    assert take(tmp_path / "val", tmp_path / "out", step=20).metrics["score"]["value"] == 1


def test_a_prompt_that_the_data_hold_twice_is_two_items(tmp_path: Path) -> None:
    rows = generations([[1, 0], [1, 1], [0, 0], [0, 1]])
    twin = {"input": rows[0]["input"], "gts": rows[0]["gts"]}
    rows = [row | (twin if row["input"] == "question 3" else {}) for row in rows]
    run = take(write_rows(tmp_path / "20.jsonl", rows), tmp_path / "out")
    assert (run.items, run.trials) == (4, 2)
    assert run.grids["score"].scores.tolist() == [[1, 0], [0, 1], [1, 1], [0, 0]]


def test_a_prompt_with_fewer_answers_is_refused(tmp_path: Path) -> None:
    rows = generations([[1, 0, 1], [1, 1, 1], [0, 1, 0]])[:-1]
    with pytest.raises(HubtoolsError, match=r"HT463.*from 2 to 3 answers"):
        take(write_rows(tmp_path / "20.jsonl", rows), tmp_path / "out")


def test_rewards_that_are_no_share_are_left_out(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = generations([[1], [0]])
    rows[1]["score"] = -0.5
    run = take(write_rows(tmp_path / "20.jsonl", rows), tmp_path / "out")
    assert list(run.metrics) == ["acc"]
    rows = [row | {"acc": 2} for row in rows]
    with pytest.raises(HubtoolsError, match="HT464"):
        take(write_rows(tmp_path / "21.jsonl", rows), tmp_path / "out")


def test_names_that_cannot_head_a_column_are_left_out(tmp_path: Path) -> None:
    rows = [row | {"failures": 0.5, "a|b": 1, " ": 0} for row in generations([[1], [0]])]
    run = take(write_rows(tmp_path / "20.jsonl", rows), tmp_path / "out")
    assert set(run.metrics) == {"score", "acc"}
    assert {"failures", "a|b", " "} < set(raw(run)["left_out"])
    facts = run_facts(run, path_in_facts="run.json")
    assert len({fact.id for fact in facts}) == len(facts)


def test_half_a_surrogate_pair_is_no_reason_to_refuse(tmp_path: Path) -> None:
    rows = [row | {"output": "\ud83d", "input": "\U0001f600"} for row in generations([[1]])]
    run = take(write_rows(tmp_path / "20.jsonl", rows), tmp_path / "out")
    (sample,) = run.iter_samples()
    assert (sample["output"], sample["messages"][0]["content"]) == ("?", "\U0001f600")


def test_a_cut_line_is_named(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "20.jsonl", generations([[1], [0]]))
    path.write_text(path.read_text()[:-30])
    with pytest.raises(HubtoolsError, match=r"HT461.*20.jsonl:2"):
        take(path, tmp_path / "out")
    assert json.loads(path.read_text().splitlines()[0])["score"] == 1
