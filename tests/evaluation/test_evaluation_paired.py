"""Differences of runs with several trials, and of runs that share no items."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubtools.evaluation.statistics import wilson
from hubtools.evaluation.statistics_paired import (
    REPEATED,
    UNPAIRED,
    paired_bootstrap,
    paired_difference,
    sign_flip,
    unpaired_difference,
)

QUARTERS = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
PAIRS = st.lists(st.tuples(QUARTERS, QUARTERS), min_size=2, max_size=40)


@given(PAIRS)
@settings(deadline=None)
def test_trials_narrow_a_difference_and_turning_it_round_changes_the_sign(
    pairs: list[tuple[float, float]],
) -> None:
    a, b = zip(*pairs, strict=True)
    one = paired_difference(a, b, trials=4, resamples=50)
    other = paired_difference(b, a, trials=4, resamples=50)
    assert one.method == REPEATED
    assert one.low < one.high
    assert (one.low, one.high) == (pytest.approx(-other.high), pytest.approx(-other.low))
    assert one.p == other.p


def test_a_repeated_difference_by_hand() -> None:
    a, b = [0.5, 0.75, 1.0, 0.25], [0.25, 0.75, 0.5, 0.25]
    found = paired_difference(a, b, trials=4)
    deltas = np.array([0.25, 0, 0.5, 0, 0.25, -0.25])
    half = 3.182446 * deltas.std() / math.sqrt(6)
    assert found.diff == pytest.approx(0.1875)
    assert (found.low, found.high) == (
        pytest.approx(deltas.mean() - half),
        pytest.approx(deltas.mean() + half),
    )


@given(PAIRS)
@settings(deadline=None)
def test_the_paired_bootstrap_lies_around_the_difference(pairs: list[tuple[float, float]]) -> None:
    a, b = zip(*pairs, strict=True)
    low, high = paired_bootstrap(a, b, resamples=400)
    assert low - 1e-9 <= np.mean(np.subtract(a, b)) <= high + 1e-9
    assert paired_bootstrap(a, b, resamples=400) == (low, high)


def test_the_paired_bootstrap_agrees_with_t_for_many_items() -> None:
    draw = np.random.default_rng(5)
    a, b = draw.integers(0, 5, (2, 300)) / 4
    found = paired_difference(a, b, trials=4)
    assert paired_bootstrap(a, b) == (
        pytest.approx(found.low, abs=0.006),
        pytest.approx(found.high, abs=0.006),
    )
    assert paired_bootstrap([1.0], [0.25]) == (0.75, 0.75)


@pytest.mark.parametrize(("better", "worse"), [(9, 1), (5, 5), (6, 0)])
def test_the_sign_flip_test_is_the_exact_one(better: int, worse: int) -> None:
    deltas = np.array([1.0] * better + [-1.0] * worse + [0.0] * 30)
    n, far = better + worse, abs(better - worse)
    exact = sum(math.comb(n, k) for k in range(n + 1) if abs(2 * k - n) >= far) / 2**n
    assert sign_flip(deltas, 0, 20_000) == pytest.approx(exact, abs=0.01)


def test_the_sign_flip_test_of_graded_scores_counts_every_way() -> None:
    deltas = np.array([0.5, 0.25, -0.125, 1.0, 0.25, 0.75])
    signs = np.array(np.meshgrid(*[[-1, 1]] * 6)).reshape(6, -1)
    exact = np.mean(np.abs(deltas @ signs) >= deltas.sum() - 1e-9)
    assert sign_flip(deltas, 0, 20_000) == pytest.approx(exact, abs=0.01)


def test_a_sign_flip_test_of_50_000_questions_is_quick_and_small() -> None:
    deltas = np.random.default_rng(0).choice([-1.0, -0.5, 0.0, 0.5, 1.0], 50_000)
    assert 0.001 < sign_flip(deltas, 0, 10_000) <= 1


@given(st.integers(0, 40), st.integers(0, 40))
def test_an_unpaired_difference_is_wider_and_has_no_test(k: int, j: int) -> None:
    a, b = wilson(k, 40), wilson(j, 40)
    found = unpaired_difference(a, b)
    assert found.method == UNPAIRED
    assert math.isnan(found.p)
    assert found.low < found.diff < found.high or k in (0, 40) or j in (0, 40)
    assert found.low < found.high
    assert -1 <= found.low + 1e-12
    assert found.high <= 1 + 1e-12


def test_newcombes_published_interval() -> None:
    """Newcombe 1998, method 10: 56/70 against 48/80 is 0.0524 to 0.3339."""
    found = unpaired_difference(wilson(56, 70), wilson(48, 80))
    assert (found.low, found.high) == (
        pytest.approx(0.0524, abs=5e-5),
        pytest.approx(0.3339, abs=5e-5),
    )
    with pytest.raises(ValueError, match="different levels"):
        unpaired_difference(wilson(1, 2), wilson(1, 2, 0.9))
