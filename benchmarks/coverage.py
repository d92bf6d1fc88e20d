"""Coverage: how often the intervals of `evaluation/statistics*` hold the truth, by simulation.

Each line draws many small evaluations from a population whose truth is known, and counts. Nominal
is 95 %; promised are 93 % at least, near 0 and 1 too. An interval that holds the truth more often
than 98.5 % in the middle of the scale is too wide to be of use, and fails as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from common import emit, quick

from hubtools.evaluation.grid import Grid
from hubtools.evaluation.statistics import (
    Interval,
    bootstrap_mean,
    cluster_bootstrap,
    clustered,
    macro,
    wilson,
)
from hubtools.evaluation.statistics_many import holm, selection
from hubtools.evaluation.statistics_paired import (
    paired_bootstrap,
    paired_difference,
    sign_flip,
    unpaired_difference,
)
from hubtools.evaluation.statistics_trials import pass_at_k, pass_hat_k, repeats

AT_LEAST, AT_MOST, EDGE = 0.93, 0.985, 1.0
SHAPES = {"U-shaped": (0.3, 0.6), "bell-shaped": (4, 6), "near 0": (0.1, 2), "near 1": (3, 0.15)}
"""Beta distributions of how likely an item is solved."""

GAIN = 0.2
SIZES = (500,) * 6 + (125,)
CHANCES = (0.35, 0.3, 0.45, 0.3, 0.3, 0.1, 0.25)

Ends = tuple[float, float]
Drawn = tuple[Ends, float, np.ndarray | None]
"""An interval, the truth, and the scores for the peer's interval where it has one."""

draw = np.random.default_rng(20)


def answers(chances: np.ndarray, trials: int) -> np.ndarray:
    """(items, trials) of 0 and 1."""
    return (draw.random((len(chances), trials)) < chances[:, None]).astype(np.float64)


def grid(scores: np.ndarray) -> Grid:
    """Scores as statistics take them."""
    items = tuple(map(str, range(len(scores))))
    return Grid(items, items, scores)


def ends(found: Interval) -> Ends:
    """Both ends."""
    return found.low, found.high


def naive(scores: np.ndarray) -> Ends:
    """± 1.96 √(p (1 - p) / samples): what a table without clusters prints."""
    p = float(scores.mean())
    half = 1.96 * math.sqrt(p * (1 - p) / scores.size)
    return p - half, p + half


def one_score(
    how: Callable[[Grid], Interval], shape: str, items: int, trials: int
) -> Callable[[], Drawn]:
    """A mean over items of their own difficulty."""
    a, b = SHAPES[shape]

    def drawn() -> Drawn:
        scores = answers(draw.beta(a, b, items), trials)
        return ends(how(grid(scores))), a / (a + b), scores

    return drawn


def pass_chance(how: Callable[[Grid, int], Interval], *, every: bool) -> Callable[[], Drawn]:
    """pass@2 or pass^2 of 20 items × 4 trials; E[p²] is that of the beta distribution."""
    a, b = SHAPES["U-shaped"]
    both = a * (a + 1) / ((a + b) * (a + b + 1))
    true = both if every else 2 * a / (a + b) - both
    return lambda: (ends(how(grid(answers(draw.beta(a, b, 20), 4)), 2)), true, None)


def proportion(low: float, high: float, n: int) -> Drawn:
    """Wilson's interval at a chance from low to high."""
    p = float(draw.uniform(low, high))
    scores = answers(np.full(n, p), 1)
    return ends(wilson(float(scores.sum()), n)), p, scores


def graded() -> Drawn:
    """Scores like F1: 1 three times in ten, 0 four times, tenths between for the rest."""
    kind = draw.random(125)
    scores = np.where(kind < 0.3, 1.0, np.where(kind < 0.7, 0.0, draw.integers(1, 10, 125) / 10))
    found = bootstrap_mean(scores.tolist(), resamples=1000, seed=int(draw.integers(1 << 30)))
    return ends(found), 0.3 + 0.3 * 0.5, None


def seven_parts() -> Drawn:
    """A macro mean."""
    ks = draw.binomial(SIZES, CHANCES)
    parts = [wilson(int(k), n) for k, n in zip(ks, SIZES, strict=True)]
    return ends(macro({str(i): part for i, part in enumerate(parts)})), sum(CHANCES) / 7, None


def two_runs(shape: str, items: int, trials: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Item means of two runs and the true difference; each item has a gain of its own."""
    a, b = SHAPES[shape]
    easy = draw.beta(a, b, items)
    better = easy + GAIN * (1 - easy) * draw.random(items)
    means = (answers(chances, trials).mean(axis=1) for chances in (better, easy))
    return next(means), next(means), GAIN / 2 * (1 - a / (a + b))


def paired(shape: str, items: int, trials: int) -> Callable[[], Drawn]:
    """The interval of a paired difference."""

    def drawn() -> Drawn:
        a, b, true = two_runs(shape, items, trials)
        found = paired_difference(a, b, trials=trials, resamples=1)
        return (found.low, found.high), true, None

    return drawn


def paired_by_bootstrap() -> Drawn:
    """The bootstrap's interval of one."""
    a, b, true = two_runs("U-shaped", 20, 4)
    return paired_bootstrap(a, b, resamples=1000, seed=int(draw.integers(1 << 30))), true, None


def unpaired() -> Drawn:
    """The interval where nothing is paired."""
    found = unpaired_difference(
        wilson(int(draw.binomial(500, 0.35)), 500), wilson(int(draw.binomial(125, 0.3)), 125)
    )
    return (found.low, found.high), 0.05, None


def by_bootstrap(scores: Grid) -> Interval:
    """Few resamples, another seed each time."""
    return cluster_bootstrap(scores, resamples=1000, seed=int(draw.integers(1 << 30)))


def intervals() -> Iterator[tuple[str, Callable[[], Drawn], float]]:
    """Name, drawing, and the coverage that would be too much."""
    for shape in SHAPES:
        most = EDGE if "near" in shape else AT_MOST
        yield f"clustered, 20 items × 4, {shape}", one_score(clustered, shape, 20, 4), most
    yield "clustered, 200 items × 4, near 0", one_score(clustered, "near 0", 200, 4), EDGE
    yield (
        "cluster bootstrap, 20 items × 4, U-shaped",
        *(one_score(by_bootstrap, "U-shaped", 20, 4), AT_MOST),
    )
    yield "Wilson, 64 items, 0.2 to 0.8", lambda: proportion(0.2, 0.8, 64), AT_MOST
    yield "Wilson, 125 items, 0 to 0.05", lambda: proportion(0, 0.05, 125), EDGE
    yield "bootstrap, 125 graded items", graded, AT_MOST
    yield "macro mean, 6 × 500 and 125 items", seven_parts, AT_MOST
    yield "pass@2, 20 items × 4", pass_chance(pass_at_k, every=False), AT_MOST
    yield "pass^2, 20 items × 4", pass_chance(pass_hat_k, every=True), AT_MOST
    for shape, items, trials in (("U-shaped", 20, 4), ("bell-shaped", 20, 4), ("near 0", 20, 4)):
        most = EDGE if "near" in shape else AT_MOST
        yield f"paired, {items} items × {trials}, {shape}", paired(shape, items, trials), most
    yield "paired, 64 items × 1, U-shaped", paired("U-shaped", 64, 1), AT_MOST
    yield "paired, 125 items × 1, near 0", paired("near 0", 125, 1), EDGE
    yield "paired bootstrap, 20 items × 4, U-shaped", paired_by_bootstrap, AT_MOST
    yield "unpaired, 500 against 125 items", unpaired, AT_MOST


def cover(name: str, drawn: Callable[[], Drawn], most: float, rounds: int) -> None:
    """Count how often the truth is held, and print."""
    held = naively = 0
    width, scores = 0.0, None
    for _ in range(rounds):
        (low, high), true, scores = drawn()
        held += bool(low <= true <= high)
        width += high - low
        if scores is not None:
            left, right = naive(scores)
            naively += left <= true <= right
    found = held / rounds
    peer = {} if scores is None else {"normal, all samples independent": round(naively / rounds, 3)}
    emit(
        f"coverage: {name}",
        found,
        "share",
        peer,
        AT_LEAST,
        AT_LEAST <= found <= most,
        at_most=most,
        width=round(width / rounds, 3),
        rounds=rounds,
    )


def changed(gain: float) -> tuple[np.ndarray, np.ndarray]:
    """200 items, of which three in ten come out otherwise in the other run, more by `gain` well."""
    well, badly = 0.15 + gain / 2, 0.15 - gain / 2
    moved = draw.random(200)
    first = np.where(moved < well, 1.0, 0.0)
    return first, np.where((moved >= well) & (moved < well + badly), 1.0, 0.0)


def tests(rounds: int) -> None:
    """Tests under no difference, the power that is promised, and what repeats say."""
    wrong = family = shown = 0
    leads, chances, sds = [], [], []
    for _ in range(rounds):
        easy = draw.beta(*SHAPES["U-shaped"], 64)
        sisters = np.stack([answers(easy, 1)[:, 0] for _ in range(7)], axis=1)
        ps = [sign_flip(sisters[:, i] - sisters[:, 0], 0, 1000) for i in range(1, 7)]
        wrong += ps[0] <= 0.05
        family += min(holm(ps)) <= 0.05
        picked = selection(sisters)
        leads.append(picked.lead)
        chances.append(picked.by_chance)
        plan = paired_difference(*changed(0.0), resamples=1).resolvable
        found = paired_difference(*changed(plan), resamples=1)
        shown += not found.low <= 0 <= found.high
        sds.append(repeats((draw.binomial(80, 0.3, 6) / 80).tolist()).sd)
    for name, count in (("sign flip, 64 items", wrong), ("Holm over six sisters", family)):
        share = count / rounds
        emit(f"false alarms: {name}", share, "share", {}, 0.06, share <= 0.06, rounds=rounds)
    power = shown / rounds
    emit(
        *("power at the difference said to be resolvable", power, "share", {}, 0.75, power >= 0.75),
        rounds=rounds,
    )
    ratio = float(np.mean(leads) / np.mean(chances))
    emit(
        *("selection: lead of the best of 7 equals over the one foretold", ratio, "ratio", {}),
        *(1.0, abs(ratio - 1) <= 0.05),
        rounds=rounds,
    )
    unsure = float(np.std(sds) / np.mean(sds))
    emit(
        *("repeats: uncertainty of an SD of 6, relative", unsure, "share", {"1/√(2·5)": 0.316}),
        *(0.316, abs(unsure - 0.316) <= 0.04),
        rounds=rounds,
    )


def main() -> None:
    """Every interval, then the tests."""
    rounds = 1000 if quick() else 5000
    for name, drawn, most in intervals():
        cover(name, drawn, most, rounds)
    tests(rounds)


if __name__ == "__main__":
    main()
