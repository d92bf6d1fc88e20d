from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_runs import column, made_run, told_run

from hubtools.errors import CheckError
from hubtools.evaluation.records import Run
from hubtools.evaluation.run_facts import repeated_facts, repeats_record, run_facts
from hubtools.facts import Fact, FactSet, facts_from_json


def at(record: Any, pointer: str) -> Any:
    for key in pointer.split("/")[1:]:
        record = record[key.replace("~1", "/").replace("~0", "~")]
    return record


def test_every_fact_stands_in_the_record_where_it_says(tmp_path: Path) -> None:
    run = made_run(
        tmp_path,
        {"em": column(1, 0, 1, None, 1), "f1": column(1, 0.1, 0.7, None, 1)},
        categories=["a/b", "a/b", "c~d", "c~d", "c~d"],
        average="macro",
        tiers=[1, 2, 2, 1, 1],
    )
    facts = FactSet(tuple(run_facts(run, path_in_facts="x/run.json")))
    record = json.loads(run.path.read_bytes())
    for fact in facts:
        assert at(record, fact.source.pointer) == fact.value, fact.id
    assert {fact.id.removeprefix("eval.made.") for fact in facts} == {
        *("em", "f1", "macro.em", "macro.f1", "a/b.em", "c~d.em", "a/b.f1", "c~d.f1"),
        *("failures", "cut_off", "tiers.1", "tiers.2"),
    }
    whole, macro = facts.get("eval.made.em"), facts.get("eval.made.macro.em")
    assert whole is not None
    assert macro is not None
    assert (whole.k, whole.n, whole.value) == (3, 4, 0.75)
    assert (macro.k, macro.value) == (None, 0.75)
    assert macro.spread is not None
    assert macro.spread.low < macro.value < macro.spread.high
    failed = facts.get("eval.made.failures")
    assert failed is not None
    assert (failed.value, failed.n) == (1, 5)
    assert facts_from_json(json.loads(json.dumps(facts.to_json()))) == facts


@pytest.mark.parametrize("status", ["external", "reported"])
def test_what_nobody_here_measured_says_who_did(tmp_path: Path, status: str) -> None:
    run = made_run(tmp_path, {"em": column(1, 0)}, status=status)
    for fact in run_facts(run, path_in_facts="x"):
        assert fact.status == status
        assert fact.source.quote.startswith("made 3: ")


def test_a_figure_without_samples_keeps_k_of_n_and_its_words(tmp_path: Path) -> None:
    em = run_facts(told_run(tmp_path, 24, 80, member="r2e"), path_in_facts="x")[0]
    assert (em.id, em.status, em.value, em.k, em.n) == ("eval.made.em", "reported", 0.3, 24, 80)
    assert em.spread is not None
    assert em.spread.method == "Wilson"


def test_trials_make_the_interval_one_by_item(tmp_path: Path) -> None:
    run = made_run(tmp_path, {"em": [[1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 0, 1]]})
    [em, *_] = run_facts(run, path_in_facts="x")
    assert em.spread is not None
    assert em.spread.method.startswith("by item, t")
    assert (em.n, em.k) == (12, 7)


def repeated(folder: Path, *values: tuple[float, ...]) -> tuple[list[Run], Fact, Any]:
    runs = [
        made_run(folder, {"em": column(*scores)}, seed=seed) for seed, scores in enumerate(values)
    ]
    made = repeats_record(runs, [f"seed{run.seed}/run.json" for run in runs])
    record = json.loads(json.dumps(made))
    facts = repeated_facts(runs, path_in_facts="repeats.json", sha256="ab" * 32)
    for fact in facts:
        assert at(record, fact.source.pointer) == fact.value, fact.id
    assert [fact.id for fact in facts] == [
        "eval.made.em",
        "eval.made.failures",
        "eval.made.cut_off",
    ]
    return runs, facts[0], record


def test_three_repeats_are_their_mean_with_its_sd(tmp_path: Path) -> None:
    runs, fact, record = repeated(tmp_path, (1, 0, 0, 0), (1, 1, 0, 0), (1, 1, 1, 0))
    assert fact.value == at(record, fact.source.pointer) == 0.5
    assert fact.spread is not None
    assert (fact.spread.kind, fact.spread.k, fact.repeats, fact.n) == ("sd", 3, 3, 4)
    assert fact.spread.high - fact.value == pytest.approx(0.25)
    assert [run["sha256"] for run in record["runs"]] == [run.sha256 for run in runs]
    assert record["runs"][1]["path"] == "seed1/run.json"


def test_failures_of_all_repeats_are_counted_together(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path, {"em": column(1, None, 0)}, seed=seed, tiers=[1, 1, 2])
        for seed in (1, 2)
    ]
    failed, _, *tiers = repeated_facts(runs, path_in_facts="x", sha256="ab" * 32)[1:]
    assert (failed.value, failed.n) == (2, 6)
    assert [(fact.id, fact.value) for fact in tiers] == [
        ("eval.made.tiers.1", 2),
        ("eval.made.tiers.2", 2),
    ]


def test_two_repeats_are_two_values(tmp_path: Path) -> None:
    _, fact, record = repeated(tmp_path, (1, 0, 0, 0), (1, 1, 0, 0))
    assert fact.value == at(record, fact.source.pointer) == [0.25, 0.5]
    assert fact.spread is None


def test_equal_repeats_have_the_interval_of_their_items_and_no_sd_of_nothing(
    tmp_path: Path,
) -> None:
    _, fact, record = repeated(tmp_path, (1, 0, 0, 0), (1, 0, 0, 0), (1, 0, 0, 0))
    assert fact.value == at(record, fact.source.pointer) == 0.25
    assert fact.spread is not None
    assert fact.spread.kind == "ci"
    assert fact.spread.low < 0.25 < fact.spread.high


def test_runs_that_are_no_repeats_are_refused(tmp_path: Path) -> None:
    one = made_run(tmp_path, {"em": column(1, 0)})
    other = made_run(tmp_path, {"em": column(1, 0)}, weights="ff", seed=1)
    for runs, why in (
        ([one, other], "they differ in weights"),
        ([one, one], "it is one and the same"),
        ([one], "it is one and the same"),
        ([one, made_run(tmp_path, {"em": column(1)})], "they differ in the questions"),
    ):
        with pytest.raises(CheckError, match=why) as caught:
            repeats_record(runs, ["x"] * len(runs))
        assert caught.value.id == "HT445"
