"""Intervals of items answered several times, of macro means, and the t quantile under them."""

from __future__ import annotations

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubtools.evaluation.grid import Grid
from hubtools.evaluation.statistics import (
    BOOTSTRAP,
    CLUSTERED,
    Interval,
    bootstrap_mean,
    cluster_bootstrap,
    clustered,
    interval,
    macro,
    t_quantile,
    wilson,
)


def grid(scores: list[list[float]] | np.ndarray) -> Grid:
    table = np.asarray(scores, dtype=np.float64)
    items = tuple(f"q{i}" for i in range(len(table)))
    return Grid(items, ("all",) * len(items), table)


GRIDS = st.integers(1, 5).flatmap(
    lambda trials: st.lists(
        st.lists(st.sampled_from([0.0, 1.0, 0.5, math.nan]), min_size=trials, max_size=trials),
        min_size=1,
        max_size=30,
    )
)


@pytest.mark.parametrize(
    ("df", "tabled"),
    [
        *((1, 12.706205), (2, 4.302653), (3, 3.182446), (4, 2.776445), (5, 2.570582)),
        *((10, 2.228139), (19, 2.093024), (20, 2.085963), (30, 2.042272), (60, 2.000298)),
        *((100, 1.983972), (101, 1.983731), (120, 1.979930), (1000, 1.962339)),
    ],
)
def test_the_t_quantile_is_the_tabled_one(df: int, tabled: float) -> None:
    assert t_quantile(df) == pytest.approx(tabled, abs=1e-6)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.999])
def test_the_t_quantile_falls_with_every_degree_towards_the_normal_one(level: float) -> None:
    found = [t_quantile(df, level) for df in range(1, 300)]
    assert all(a > b for a, b in itertools.pairwise(found))
    assert t_quantile(10**7, level) == pytest.approx(NormalDist().inv_cdf((1 + level) / 2))


def test_no_degrees_of_freedom_are_refused() -> None:
    with pytest.raises(ValueError, match="0 degrees"):
        t_quantile(0)


def test_four_equal_trials_are_worth_one() -> None:
    """20 items that are always or never solved: 80 samples say what 20 say."""
    scores = [[1.0] * 4] * 6 + [[0.0] * 4] * 14
    found, naive, single = clustered(grid(scores)), wilson(24, 80), wilson(6, 20)
    assert (found.value, found.n, found.method) == (0.3, 80, CLUSTERED)
    assert found.high - found.low > 1.7 * (naive.high - naive.low)
    assert found.low == pytest.approx(single.low, abs=0.015)
    assert found.high == pytest.approx(single.high, abs=0.015)


def test_trials_that_are_independent_are_worth_all_of_them() -> None:
    """Where every item is solved in two of four trials, items do not matter."""
    found = clustered(grid([[1.0, 0.0, 1.0, 0.0]] * 20))
    z = t_quantile(19)
    assert found.high - found.low == pytest.approx(2 * z / math.sqrt(80 + z * z) / 2, rel=1e-6)


def test_a_clustered_interval_by_hand() -> None:
    """Between items: variance 0.0875 / 20 of the mean, so 48 samples would be as sure."""
    scores = [[1, 1, 0, 0]] * 10 + [[1, 0, 0, 0]] * 5 + [[0, 0, 0, 0]] * 5
    found = clustered(grid(np.array(scores)))
    means = np.array([0.5] * 10 + [0.25] * 5 + [0.0] * 5)
    error = means.std(ddof=1) / math.sqrt(20)
    p, n, z = 0.3125, min(80, 0.3125 * 0.6875 / error**2), 2.093024
    centre = (p + z * z / 2 / n) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / 4 / n / n)
    assert (found.low, found.high) == (
        pytest.approx(centre - half, abs=1e-6),
        pytest.approx(centre + half, abs=1e-6),
    )


@given(GRIDS)
def test_every_interval_holds_its_value_and_has_a_width(scores: list[list[float]]) -> None:
    table = grid(scores)
    if table.n == 0:
        with pytest.raises(ValueError, match="no scores"):
            interval(table)
        return
    for found in (interval(table), clustered(table), cluster_bootstrap(table, resamples=50)):
        assert found.value == pytest.approx(float(np.nanmean(table.scores)))
        assert 0 <= found.low <= found.value <= found.high <= 1
        assert found.high - found.low > 0.01


def test_which_interval_fits() -> None:
    assert interval(grid([[1.0], [0.0]])).method == "Wilson"
    assert interval(grid([[0.4], [0.0], [1.0]])).method == BOOTSTRAP
    assert interval(grid([[1.0, 0.0], [0.0, 0.0]])).method == CLUSTERED


def test_one_item_says_little() -> None:
    assert clustered(grid([[1.0] * 50])) == Interval(
        1.0, wilson(1, 1).low, 1.0, 0.95, CLUSTERED, 50
    )


def test_failed_trials_weigh_nothing() -> None:
    whole = clustered(grid([[1, 0], [1, 1], [0, 0]]))
    holes = clustered(grid([[1, 0, math.nan], [1, 1, math.nan], [0, 0, math.nan]]))
    assert whole == holes


def test_the_bootstrap_of_items_keeps_their_trials_together() -> None:
    scores = [[1.0] * 4] * 6 + [[0.0] * 4] * 14
    one, four = (
        cluster_bootstrap(grid([row[:1] for row in scores])),
        cluster_bootstrap(grid(scores)),
    )
    assert (one.low, one.high) == (four.low, four.high)
    assert four.high - four.low > 0.38


def test_the_bootstrap_of_50_000_questions_fits_into_memory() -> None:
    scores = np.repeat([0.0, 0.25, 1.0], [20_000, 20_000, 11_713]).tolist()
    found = bootstrap_mean(scores)
    error = np.std(scores) / math.sqrt(len(scores))
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.05)


def test_the_error_of_a_macro_mean_is_that_of_unweighted_parts() -> None:
    """Sizes 500 and 125 with other scores: √Σse² / m, not the pooled error."""
    parts = {"nq": wilson(150, 500), "bamboogle": wilson(75, 125)}
    found = macro(parts)
    error = math.hypot(math.sqrt(0.3 * 0.7 / 500), math.sqrt(0.6 * 0.4 / 125)) / 2
    assert found.value == pytest.approx(0.45)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.02)
    assert (found.n, found.method) == (625, "mean of category intervals: Wilson")
    pooled = wilson(225, 625)
    assert found.value != pytest.approx(pooled.value, abs=0.05)
    with pytest.raises(ValueError, match="no categories"):
        macro({})


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 8), min_size=1, max_size=7))
def test_a_macro_interval_stays_within_zero_and_one(ks: dict[str, int]) -> None:
    found = macro({name: wilson(k, 8) for name, k in ks.items()})
    assert -1e-12 <= found.low < found.high <= 1 + 1e-12
    assert found.low - 1e-12 <= found.value <= found.high + 1e-12


def test_the_clustered_interval_covers_where_the_naive_one_does_not() -> None:
    """20 items of U-shaped difficulty × 4 trials, 400 evaluations, nominal 95 %."""
    draw = np.random.default_rng(4)
    held = naive = 0
    for _ in range(400):
        easy = draw.beta(0.3, 0.6, (20, 1))
        scores = (draw.random((20, 4)) < easy).astype(float)
        found, p = clustered(grid(scores)), float(scores.mean())
        half = 1.96 * math.sqrt(p * (1 - p) / 80)
        held += found.low <= 1 / 3 <= found.high
        naive += abs(p - 1 / 3) <= half
    assert 0.93 <= held / 400 <= 0.985
    assert naive / 400 < 0.82
