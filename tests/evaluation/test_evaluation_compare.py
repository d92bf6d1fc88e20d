from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hubtools.errors import CheckError
from hubtools.evaluation.compare import compare
from hubtools.evaluation.records import read_run
from hubtools.evaluation.tables import metric_json, metric_tables


def test_two_more_right_of_24_is_noise_and_twenty_is_not(runs: dict[str, Path]) -> None:
    base, mi, r2e = (read_run(runs[name]) for name in ("base", "mi", "r2e"))
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


def test_f1_is_compared_too(runs: dict[str, Path]) -> None:
    assert not compare(read_run(runs["r2e"]), read_run(runs["mi"]), "f1").within_noise


def test_other_protocols_are_not_compared_and_the_fields_are_named(runs: dict[str, Path]) -> None:
    a, b = read_run(runs["mi"]), read_run(runs["base"])
    other = {**b.protocol, "dtype": "bfloat16", "engine": {"vllm": "0.32"}}
    with pytest.raises(CheckError) as caught:
        compare(a, replace(b, protocol=other, protocol_id="e" * 64), "em")
    assert caught.value.id == "HT411"
    assert caught.value.message == "mi and base were measured under different protocols"
    assert caught.value.detail[0] == "They differ in: dtype, engine, engine.vllm."


def test_other_questions_and_absent_metrics_are_refused(runs: dict[str, Path]) -> None:
    a, b = read_run(runs["mi"]), read_run(runs["base"])
    with pytest.raises(CheckError, match="mi: no metric 'bleu' in this run, only em, f1"):
        compare(a, b, "bleu")
    with pytest.raises(CheckError, match="asked different questions"):
        compare(a, replace(b, samples=b.samples[1:]), "em")
    failed = tuple({**sample, "failure": "HTTP 500"} for sample in b.samples)
    with pytest.raises(CheckError, match="no scored question in common"):
        compare(a, replace(b, samples=failed), "em")


def test_questions_that_failed_in_either_run_are_left_out_of_the_pairs(
    runs: dict[str, Path],
) -> None:
    a, b = read_run(runs["mi"]), read_run(runs["base"])
    failed = ({**b.samples[0], "failure": "HTTP 500"}, *b.samples[1:])
    assert compare(a, replace(b, samples=failed), "em").n == 23


def test_one_table_has_one_protocol(runs: dict[str, Path]) -> None:
    a, b = read_run(runs["mi"]), read_run(runs["base"])
    other = replace(b, protocol={**b.protocol, "batch_size": 1}, protocol_id="e" * 64)
    [together] = metric_tables([a, b])
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
    assert together.rows[1][1:4] == ("words", "0.125", "0.043–0.310")
    first, second = metric_tables([a, other, a])
    assert [row[0] for row in first.rows] == ["mi", "mi"]
    assert (first.differs, second.differs) == ((), ("batch_size",))


def test_figures_as_json_have_n_and_interval(runs: dict[str, Path]) -> None:
    figures = json.loads(json.dumps(metric_json(read_run(runs["base"]))))
    assert figures["em"]["k"] == 3
    assert figures["em"]["interval"]["method"] == "Wilson"
    assert figures["f1"]["interval"]["method"] == "bootstrap"
