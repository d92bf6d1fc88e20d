from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hubtools.evaluation.grid import grids


def sample(item: str, trial: int, em: float | None, category: str = "a") -> dict[str, Any]:
    scores = None if em is None else {"em": em, "f1": em / 2}
    return {"item": item, "category": category, "trial": trial, "scores": scores}


def test_samples_become_a_table_of_items_by_trials() -> None:
    given = [
        *(sample("q1", 0, 1.0), sample("q1", 1, 0.0)),
        *(sample("q2", 0, None), sample("q2", 1, 1.0, "b")),
        *(sample("q3", 0, None), sample("q3", 1, None)),
    ]
    found = grids(given, ["em", "f1"])
    em = found["em"]
    np.testing.assert_array_equal(em.scores, [[1, 0], [np.nan, 1], [np.nan, np.nan]])
    assert (em.items, em.categories) == (("q1", "q2", "q3"), ("a", "a", "a"))
    assert (em.sums.tolist(), em.counts.tolist(), em.n) == ([1, 1, 0], [2, 1, 0], 3)
    assert (em.binary, em.complete, found["f1"].binary) == (True, False, False)
    assert em.scored().items == ("q1", "q2")
    assert em.scored().only("b").items == ()
    assert em.beside([em]).scores.shape == (3, 4)


def test_trials_of_an_item_need_not_stand_together() -> None:
    given = [sample(f"q{i}", trial, float(i)) for trial in range(2) for i in range(2)]
    assert grids(given, ["em"])["em"].sums.tolist() == [0, 2]


def test_a_trial_that_is_there_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="two samples of one item and trial"):
        grids([sample("q", 0, 1.0), sample("q", 0, 0.0)], ["em"])


def test_runs_of_other_items_are_not_put_side_by_side() -> None:
    one, other = (grids([sample(name, 0, 1.0)], ["em"])["em"] for name in "ab")
    with pytest.raises(ValueError, match="not the same items"):
        one.beside([other])


def test_no_samples_are_an_empty_grid() -> None:
    empty = grids([], ["em"])["em"]
    assert (empty.n, empty.items, empty.complete) == (0, (), True)
