"""Samples of lm-eval become ours: filters put together, NaN a failure, other figures named."""

from __future__ import annotations

import math
from typing import Any

from hubtools.evaluation.lmeval.samples import metric_names, samples_of


def raw(number: int, filter: str = "none", task: str = "t", **more: Any) -> dict[str, Any]:
    sample = {
        "task": task,
        "doc_id": number,
        "target": "yes",
        "arguments": [["What?", {"until": []}]],
        "resps": [["yes"]],
        "filtered_resps": ["yes"],
        "filter": filter,
        "metrics": ["exact_match"],
        "exact_match": 1.0,
        "doc_hash": f"h{number}",
    }
    return {**sample, **more}


def test_filters_of_a_document_are_one_sample() -> None:
    both = [raw(0, "strict", exact_match=0.0), raw(0, "flexible")]
    assert metric_names(both) == (["exact_match,strict", "exact_match,flexible"], [])
    (sample,) = samples_of(both, ["exact_match,strict", "exact_match,flexible"])
    assert sample["scores"] == {"exact_match,strict": 0.0, "exact_match,flexible": 1.0}
    assert sample["messages"] == [{"role": "user", "content": "What?"}]


def test_a_likelihood_without_a_number_is_a_failure_whatever_its_score() -> None:
    lost = raw(0, resps=[[(math.nan, False)], [(-1.0, True)]], exact_match=1.0)
    (sample,) = samples_of([lost], ["exact_match"])
    assert (sample["scores"], sample["failure_kind"]) == (None, "infrastructure")


def test_figures_that_are_no_share_and_those_of_some_tasks_alone_are_left_out() -> None:
    long = raw(0, metrics=["exact_match", "bleu"], bleu=31.5)
    short = raw(1, metrics=["exact_match", "bleu"], bleu=0.5)
    assert metric_names([long, short]) == (["exact_match"], ["bleu"])
    other = raw(0, task="u", metrics=["acc"], acc=1.0)
    assert metric_names([raw(0), other]) == ([], ["exact_match", "acc"])


def test_documents_stand_in_the_order_of_tasks_and_numbers() -> None:
    mixed = [raw(1, task="b"), raw(0, task="b"), raw(0, task="a")]
    assert [s["item"] for s in samples_of(mixed, ["exact_match"])] == ["b/0", "b/1", "a/0"]
