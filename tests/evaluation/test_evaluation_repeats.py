"""What counts as a measurement of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import column, drawn, made_run

from eval_harness.record import SAMPLES, write_json
from hubtools.card.text import value_text
from hubtools.errors import CheckError
from hubtools.evaluation.compare import compare, compare_repeats
from hubtools.evaluation.records import Run
from hubtools.evaluation.repeats import distinct
from hubtools.evaluation.run_facts import repeated_facts, repeats_record
from hubtools.evaluation.tables import metric_tables


def greedy(folder: Path, member: str = "base", seeds: int = 2, draw: int = 1) -> list[Run]:
    scores = {"em": drawn(draw, 64, 1)}
    return [made_run(folder, scores, member=member, seed=seed) for seed in range(seeds)]


def test_equal_answers_under_another_seed_narrow_nothing(tmp_path: Path) -> None:
    base, mine = greedy(tmp_path), greedy(tmp_path, "r2e", draw=2)
    once, twice = compare(mine[0], base[0], "em"), compare_repeats(mine, base, "em")
    assert twice == once
    [alone], [both] = metric_tables([base[0]]), metric_tables(base)
    assert both.lines[0].scores == (replace(alone.lines[0].scores[0], runs=2),)
    assert both.rows[0][2] == f"{alone.rows[0][2]} (2 equal runs)"
    assert both.rows[0][3:] == alone.rows[0][3:]
    assert not [note for note in both.notes if "pass@" in note]


def test_the_card_calls_equal_runs_equal_and_keeps_the_interval_of_one(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, {"em": column(1, 0, 0, 0)}, seed=seed) for seed in (0, 1)]
    fact = repeated_facts(runs, path_in_facts="x", sha256="ab" * 32)[0]
    assert (fact.k, fact.n, fact.repeats) == (1, 4, 2)
    assert value_text(fact) == "0.250 (1/4) (2 equal runs), 95 % CI 0.046 to 0.699"  # Wilson
    assert repeats_record(runs, ["a", "b"])["figures"]["all"]["em"]["runs"] == 2


def test_equal_scores_of_other_texts_are_measurements_of_their_own(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, {"em": column(1, 0)}, seed=seed) for seed in (0, 1, 2)]
    for run in runs[:2]:
        file = run.path.with_name(SAMPLES)
        samples = [json.loads(line) for line in file.read_text().splitlines()]
        texts = [sample | {"output": f"by {run.seed}"} for sample in samples]
        file.write_text("".join(json.dumps(sample) + "\n" for sample in texts))
    assert distinct(runs) == runs
    copy = replace(runs[2], sha256="00" * 32)
    assert distinct([*runs, copy]) == runs


def test_some_equal_runs_of_several_are_told(tmp_path: Path) -> None:
    rows = [(1, 1, 0, 0), (1, 1, 0, 0), (1, 0, 0, 0)]
    runs = [made_run(tmp_path, {"em": column(*row)}, seed=at) for at, row in enumerate(rows)]
    [table] = metric_tables(runs)
    assert table.rows[0][2] == "0.500 and 0.250"
    assert "base: 2 of 3 runs differ; equal ones count once" in table.notes


def test_a_failed_answer_makes_no_second_measurement(tmp_path: Path) -> None:
    part = made_run(tmp_path, {"em": column(1, 0, 0, None)})
    full = made_run(tmp_path, {"em": column(1, 0, 0, 1)}, seed=1)
    assert distinct([part, full]) == [full]


def test_a_run_that_goes_on_with_another_replaces_it(tmp_path: Path) -> None:
    """4 of 8 failed; asked again, they are all there: 0.750 of 8, no repeats, no failures."""
    part = made_run(tmp_path, {"em": column(1, 1, 0, 0, None, None, None, None)})
    whole = made_run(tmp_path, {"em": column(1, 1, 0, 0, 1, 1, 1, 1)})
    write_json(whole.path.with_name("about.json"), {"continues": part.path.parent.name})
    [table] = metric_tables([part, whole])
    assert (table.rows[0][2], *table.rows[0][4:]) == ("0.750", "8", "0")
    with pytest.raises(CheckError, match="one and the same") as caught:
        repeats_record([part, whole], ["a", "b"])
    assert caught.value.id == "HT445"
    other = made_run(tmp_path, {"em": column(*[1] * 8)}, member="mi")
    write_json(other.path.with_name("about.json"), {"continues": whole.path.parent.name})
    [table] = metric_tables([part, whole, other])  # nobody takes away another's run
    assert [row.label for row in table.lines] == ["base", "mi"]


def test_one_file_taken_in_twice_is_one_row(tmp_path: Path) -> None:
    twice = [
        replace(made_run(tmp_path, {"em": column(1, 0)}, status="external"), weights="")
        for _ in range(2)
    ]
    [table] = metric_tables([twice[0], replace(twice[1], sha256="00" * 32)])
    assert [(row[0], row[2], row[4]) for row in table.rows] == [
        ("base (external)", "0.500 (2 equal runs)", "2")
    ]


def test_ids_of_tool_calls_make_no_other_answer(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, {"em": column(1)}, seed=seed) for seed in (0, 1, 2)]
    for run, name in zip(runs, ("a", "a", "b"), strict=True):
        file = run.path.with_name(SAMPLES)
        calls = [{"id": f"call_{run.seed}", "function": {"name": name}}]
        said = json.loads(file.read_text()) | {"transcript": [{"tool_calls": calls}]}
        file.write_text(json.dumps(said) + "\n")
    assert distinct(runs) == [runs[0], runs[2]]
