"""Several answers, several runs, many sisters: pass@k, spread, correction, selection."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubtools.evaluation.grid import Grid
from hubtools.evaluation.statistics_many import expected_maximum, holm, selection
from hubtools.evaluation.statistics_trials import (
    both_conventions,
    mean_at_k,
    pass_at_k,
    pass_hat_k,
    repeats,
)

SEED_REPEATS = [0.2375, 0.2875, 0.35, 0.35, 0.2375, 0.3375]
"""mean@4 of 20 tasks, six times, as verl-recipe PR #121 reports it."""


def grid(scores: list[list[float]]) -> Grid:
    items = tuple(f"q{i}" for i in range(len(scores)))
    return Grid(items, ("all",) * len(items), np.array(scores, dtype=np.float64))


ROWS = st.integers(1, 6).flatmap(
    lambda n: st.lists(
        st.lists(st.sampled_from([0.0, 1.0]), min_size=n, max_size=n), min_size=1, max_size=6
    )
)


@given(ROWS, st.data())
def test_pass_at_k_and_pass_hat_k_are_what_counting_every_choice_gives(
    rows: list[list[float]], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(rows[0])))
    chosen = [list(itertools.combinations(row, k)) for row in rows]
    some = np.mean([np.mean([any(pick) for pick in picks]) for picks in chosen])
    every = np.mean([np.mean([all(pick) for pick in picks]) for picks in chosen])
    at, hat = pass_at_k(grid(rows), k), pass_hat_k(grid(rows), k)
    assert (at.value, hat.value) == (pytest.approx(some), pytest.approx(every))
    for found in (at, hat):
        assert found.low <= found.value <= found.high
        assert found.high - found.low > 0.01


def test_two_of_four_under_both_names() -> None:
    """The names that harnesses mix up: 0.83 and 0.17."""
    rows = [[1.0, 1.0, 0.0, 0.0]] * 3
    assert pass_at_k(grid(rows), 2).value == pytest.approx(5 / 6)
    assert pass_hat_k(grid(rows), 2).value == pytest.approx(1 / 6)
    assert pass_at_k(grid(rows), 1).value == pass_hat_k(grid(rows), 1).value == 0.5


@pytest.mark.parametrize("k", [0, 5])
def test_more_than_there_are_trials_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match="only 4 scored trials"):
        pass_at_k(grid([[1.0, 0.0, 0.0, 1.0]]), k)
    with pytest.raises(ValueError, match="only 3 scored trials"):
        pass_hat_k(grid([[1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, math.nan]]), 4)


def test_graded_scores_have_no_successes_to_count() -> None:
    with pytest.raises(ValueError, match="scores of 0 or 1"):
        pass_at_k(grid([[0.5, 1.0]]), 2)


def test_mean_at_k_is_the_mean_over_prompts_and_wants_the_whole_grid() -> None:
    rows = [[1.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0]]
    assert mean_at_k(grid(rows), 4).value == 0.5
    rows[0][2] = math.nan
    with pytest.raises(ValueError, match="mean@4 needs 4 scored trials"):
        mean_at_k(grid(rows), 4)


def test_the_seeds_band_is_the_sd_of_six_repeats_and_no_more_than_sampling_gives() -> None:
    found = repeats(SEED_REPEATS)
    assert found.mean == pytest.approx(0.300)
    assert found.sd == pytest.approx(0.0536, abs=5e-5)
    assert found.sem == pytest.approx(0.022, abs=5e-4)
    assert found.sd_uncertainty == pytest.approx(0.32, abs=5e-3)
    assert found.sampling_sd(80) == pytest.approx(0.0512, abs=5e-5)
    assert found.sd < found.sampling_sd(80) * (1 + found.sd_uncertainty)
    assert found.low < found.mean < found.high


def test_two_values_have_both_values_and_an_sd_that_knows_nothing() -> None:
    found = repeats([0.5625, 0.55])
    assert found.values == (0.5625, 0.55)
    assert found.sd == pytest.approx(0.0088, abs=5e-5)
    assert found.sd_uncertainty == pytest.approx(0.707, abs=1e-3)
    with pytest.raises(ValueError, match="one value has no spread"):
        repeats([0.5])


def test_failures_under_both_conventions() -> None:
    assert both_conventions(grid([[1.0], [0.0], [math.nan]]), 3) == (0.5, pytest.approx(1 / 3))
    with pytest.raises(ValueError, match="0 scored of 1"):
        both_conventions(grid([[math.nan]]), 1)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    with pytest.raises(ValueError, match="not between 0 and 1"):
        holm([math.nan])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_keeps_the_order_and_never_lowers(ps: list[float]) -> None:
    corrected = holm(ps)
    pairs = sorted(zip(ps, corrected, strict=True))
    assert all(p <= more <= 1 for p, more in pairs)
    assert all(a[1] <= b[1] for a, b in itertools.pairwise(pairs))
    assert min(corrected) == pytest.approx(min(1.0, len(ps) * min(ps)))


def test_the_best_of_seven_equals_lies_above_their_mean() -> None:
    """By drawing seven equal checkpoints again and again; items of their own difficulty."""
    draw = np.random.default_rng(7)
    easy = draw.beta(0.5, 0.8, (400, 200, 1))
    drawn = (draw.random((400, 200, 7)) < easy).astype(np.float64)
    found = [selection(scores) for scores in drawn]
    assert np.mean([one.lead for one in found]) == pytest.approx(
        np.mean([one.by_chance for one in found]), rel=0.05
    )
    assert found[0].of == 7


@pytest.mark.parametrize(
    ("m", "mean"), [(1, 0.0), (2, 1 / math.sqrt(math.pi)), (7, 1.35218), (10, 1.53875)]
)
def test_expected_maxima_are_the_published_ones(m: int, mean: float) -> None:
    assert expected_maximum(m) == pytest.approx(mean, abs=1e-5)


def test_one_checkpoint_was_not_selected() -> None:
    with pytest.raises(ValueError, match="nothing to select from"):
        selection(np.zeros((5, 1)))
