from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_runs import column, made_run

from hubtools.errors import CheckError
from hubtools.evaluation.compare import compare
from hubtools.evaluation.records import Run
from hubtools.evaluation.tables import metric_json, metric_tables

RIGHT = {"base": 3, "mi": 5, "r2e": 23}
"""Of 24 questions, the first so many."""


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, Run]:
    return {member: run_of(tmp_path, member) for member in RIGHT}


def run_of(folder: Path, member: str, *, failed: int = 0, questions: int = 24, **how: Any) -> Run:
    scores = [float(place < RIGHT[member]) for place in range(questions)]
    answers = column(*[None] * failed, *scores[failed:])
    return made_run(folder, {"em": answers, "f1": answers}, member=member, **how)


def test_two_more_right_of_24_is_noise_and_twenty_is_not(runs: dict[str, Run]) -> None:
    base, mi, r2e = (runs[name] for name in ("base", "mi", "r2e"))
    small, large = compare(mi, base, "em"), compare(r2e, base, "em")
    assert small.diff == pytest.approx(2 / 24)
    assert small.within_noise
    assert small.p > 0.05
    assert large.diff == pytest.approx(20 / 24)
    assert not large.within_noise
    assert large.p < 0.01
    assert large.low > 0
    assert (large.a, large.b, large.n, large.level) == ("r2e", "base", 24, 0.95)
    assert large.protocol_id == base.protocol_id
    assert small.resolvable > small.diff


def test_f1_is_compared_too(runs: dict[str, Run]) -> None:
    assert not compare(runs["r2e"], runs["mi"], "f1").within_noise


def test_other_protocols_are_not_compared_and_the_fields_are_named(
    runs: dict[str, Run], tmp_path: Path
) -> None:
    other = run_of(tmp_path, "base", dtype="float32", engine={"vllm": "0.32"})
    with pytest.raises(CheckError) as caught:
        compare(runs["mi"], other, "em")
    assert caught.value.id == "HT411"
    assert caught.value.message == "mi and base were measured under different protocols"
    assert caught.value.detail[0] == (
        "They differ in dtype: bfloat16 against float32; engine.vllm: not stated against 0.32."
    )


def test_other_questions_and_absent_metrics_are_refused(
    runs: dict[str, Run], tmp_path: Path
) -> None:
    with pytest.raises(CheckError, match="mi: no metric 'bleu' in this run, only em, f1"):
        compare(runs["mi"], runs["base"], "bleu")
    with pytest.raises(CheckError, match="asked different questions") as caught:
        compare(runs["mi"], run_of(tmp_path, "base", questions=23), "em")
    assert caught.value.id == "HT412"
    answered_by_one = run_of(tmp_path, "base", failed=23)
    answered_by_others = made_run(
        tmp_path, {name: column(*[1.0] * 23, None) for name in ("em", "f1")}, member="mi"
    )
    with pytest.raises(CheckError, match="no scored question in common"):
        compare(answered_by_others, answered_by_one, "em")


def test_questions_that_failed_in_either_run_are_left_out_of_the_pairs(
    runs: dict[str, Run], tmp_path: Path
) -> None:
    assert compare(runs["mi"], run_of(tmp_path, "base", failed=1), "em").n == 23


def test_one_table_has_one_protocol(runs: dict[str, Run], tmp_path: Path) -> None:
    [together] = metric_tables([runs["mi"], runs["base"]])
    assert together.columns == (
        "checkpoint",
        "suite",
        "em",
        "em 95%",
        "f1",
        "f1 95%",
        "n",
        "failed",
    )
    assert [row[0] for row in together.rows] == ["mi", "base"]
    assert together.rows[1][1:4] == ("made", "0.125", "0.043–0.310")
    other = run_of(tmp_path, "base", batch_size=1)
    first, second = metric_tables([runs["mi"], other, runs["r2e"]])
    assert [row[0] for row in first.rows] == ["mi", "r2e"]
    assert first.differs == ()
    assert [str(found) for found in second.differs] == ["batch_size: not stated against 1"]


def test_figures_as_json_have_n_and_interval(tmp_path: Path) -> None:
    run = made_run(tmp_path, {"em": column(1, 0, 0), "f1": column(1, 0.4, 0)})
    figures = json.loads(json.dumps(metric_json(run)))
    assert figures["em"]["k"] == 1
    assert figures["em"]["interval"]["method"] == "Wilson"
    assert figures["f1"]["interval"]["method"] == "bootstrap"
