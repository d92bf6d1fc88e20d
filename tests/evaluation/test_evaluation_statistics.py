from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubtools.evaluation.statistics import bootstrap_mean, wilson
from hubtools.evaluation.statistics_paired import BINARY, GRADED, paired_difference

SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=80)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        (0, 8, 0.0, 0.3244),  # Newcombe 1998, method 3, and by hand: z² / (n + z²)
        (8, 8, 0.6756, 1.0),
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_against_published_intervals(k: int, n: int, low: float, high: float) -> None:
    interval = wilson(k, n)
    assert (interval.low, interval.high) == (
        pytest.approx(low, abs=5e-5),
        pytest.approx(high, abs=5e-5),
    )
    assert interval.value == k / n


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_value_and_has_a_width(pair: tuple[int, int]) -> None:
    interval = wilson(*pair)
    assert 0 <= interval.low <= interval.value <= interval.high <= 1
    assert interval.high - interval.low > 0.005


@given(SCORES)
@settings(deadline=None)
def test_no_interval_is_ever_without_width(scores: list[float]) -> None:
    interval = bootstrap_mean(scores, resamples=200)
    assert interval.low < interval.high
    assert 0 <= interval.low
    assert interval.high <= 1


@pytest.mark.parametrize(("k", "n"), [(-1, 4), (5, 4), (0, 0)])
def test_what_is_no_proportion_is_refused(k: int, n: int) -> None:
    with pytest.raises(ValueError, match="not a proportion"):
        wilson(k, n)


@pytest.mark.parametrize("scores", [[], [1.2], [-0.1], [float("nan")]])
def test_what_is_no_score_is_refused(scores: list[float]) -> None:
    with pytest.raises(ValueError, match="score"):
        bootstrap_mean(scores)
    with pytest.raises(ValueError, match="score"):
        paired_difference(scores, scores)


def test_the_bootstrap_is_that_of_the_seed_and_near_the_normal_one() -> None:
    scores = np.random.default_rng(3).beta(0.4, 0.7, 200).tolist()
    interval = bootstrap_mean(scores, seed=5)
    assert interval == bootstrap_mean(scores, seed=5)
    error = np.std(scores, ddof=1) / np.sqrt(200)
    assert interval.low == pytest.approx(np.mean(scores) - 1.96 * error, abs=0.006)
    assert interval.high == pytest.approx(np.mean(scores) + 1.96 * error, abs=0.006)


def test_paired_difference_by_hand() -> None:
    """Bonett and Price's formula worked by hand: 9 better, 1 worse, 30 equal of 40."""
    a = [1.0] * 9 + [0.0] + [1.0] * 30
    b = [0.0] * 9 + [1.0] + [1.0] * 30
    found = paired_difference(a, b)
    assert found.diff == pytest.approx(0.2)
    better, worse = 10 / 42, 2 / 42
    half = 1.959964 * np.sqrt((better + worse - (better - worse) ** 2) / 42)
    assert found.low == pytest.approx(better - worse - half)
    assert found.high == pytest.approx(better - worse + half)
    assert found.method == BINARY
    assert found.p == pytest.approx(2 * 11 / 1024, abs=0.005)  # exact sign test of 9 : 1


def test_graded_scores_are_not_said_to_be_pairs_of_right_and_wrong() -> None:
    found = paired_difference([0.5, 1.0, 0.0], [0.5, 0.0, 0.0])
    assert found.method == GRADED
    assert "Bonett" not in GRADED
    both = [0.5, 1.0, 0.0, 1.0, 0.0], [0.5, 0.0, 0.0, 0.0, 1.0]  # with the two added items
    deltas = np.subtract(*both)
    assert (found.low + found.high) / 2 == pytest.approx(deltas.mean())
    assert (found.high - found.low) / 2 == pytest.approx(1.959964 * deltas.std() / np.sqrt(5))


@given(SCORES)
@settings(deadline=None)
def test_equal_runs_differ_by_nothing_that_n_items_could_show(scores: list[float]) -> None:
    found = paired_difference(scores, scores, resamples=50)
    assert (found.diff, found.p) == (0, 1)
    assert found.low < 0 < found.high
    assert found.low == pytest.approx(-found.high)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=60))
@settings(deadline=None)
def test_turned_round_the_difference_changes_sign(pairs: list[tuple[float, float]]) -> None:
    a, b = zip(*pairs, strict=True)
    one, other = paired_difference(a, b, resamples=50), paired_difference(b, a, resamples=50)
    assert one.diff == pytest.approx(-other.diff)
    assert (one.low, one.high) == (pytest.approx(-other.high), pytest.approx(-other.low))
    assert one.low < one.high
    assert 0 < one.resolvable <= 1


def test_runs_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="not the same items"):
        paired_difference([1.0], [1.0, 0.0])


@pytest.mark.parametrize("gain", [0.0, 0.15])
def test_intervals_cover_the_truth_about_as_often_as_they_say(gain: float) -> None:
    """Items of their own difficulty, 64 of them, 400 repetitions; nominal 95 %."""
    draw = np.random.default_rng(11)
    covered = wrong = 0
    for _ in range(400):
        easy = draw.beta(0.5, 0.8, 64)
        a = (draw.random(64) < np.minimum(easy + gain, 1)).astype(float)
        b = (draw.random(64) < easy).astype(float)
        truth = float(np.mean(np.minimum(easy + gain, 1) - easy))
        found = paired_difference(a, b, resamples=1)
        covered += found.low <= truth <= found.high
        wrong += not found.low <= 0 <= found.high
    assert covered / 400 >= 0.93
    if gain == 0:
        assert wrong / 400 <= 0.07


@pytest.mark.parametrize("moved", [0.05, 0.3])
def test_intervals_of_graded_scores_cover_too(moved: float) -> None:
    """64 items with scores like F1's: many 0, many 1, the rest between; few or many change."""
    draw = np.random.default_rng(13)

    def scores(easy: np.ndarray) -> np.ndarray:
        partial = draw.beta(2, 2, 64)
        kind = draw.random(64)
        return np.where(kind < 0.7, draw.random(64) < easy, partial).astype(float)

    covered = 0
    for _ in range(400):
        b = scores(np.full(64, 0.4))
        a = np.where(draw.random(64) < moved, scores(np.full(64, 0.7)), b)
        truth = moved * 0.7 * 0.3  # of the items that change, seven in ten gain 0.3 on average
        found = paired_difference(a, b, resamples=1)
        assert found.method == GRADED
        covered += found.low <= truth <= found.high
    assert covered / 400 >= 0.93


def test_the_resolvable_difference_is_found_four_times_in_five() -> None:
    draw = np.random.default_rng(12)
    b = (draw.random(64) < 0.3).astype(float)
    claimed = paired_difference((draw.random(64) < 0.5).astype(float), b, resamples=1).resolvable
    found = 0
    for _ in range(400):
        a = (draw.random(64) < 0.3 + claimed).astype(float)
        c = (draw.random(64) < 0.3).astype(float)
        found += paired_difference(a, c, resamples=1).low > 0
    assert 0.65 <= found / 400 <= 0.95
