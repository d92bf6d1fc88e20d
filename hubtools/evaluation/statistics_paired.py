"""Whether two scores differ: over the same items in pairs, or else from their intervals. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from hubtools.evaluation.statistics import (
    LEVEL,
    RESAMPLES,
    Interval,
    checked,
    resampled_sums,
    t_quantile,
)

POWER = 0.8
BINARY = "paired, Bonett-Price"
GRADED = "paired, normal with one item added each way"
REPEATED = "paired by item, t with one trial added each way"
MACRO_PAIRED = "mean of the categories' paired intervals"
UNPAIRED = "unpaired, from the two intervals"


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of a minus mean of b.

    Args:
        diff: the difference as observed.
        low, high: its interval at `level`.
        p: of a two-sided sign-flip test over items; NaN where nothing is paired.
        n: items.
        resolvable: the smallest true difference that n such items would show four times in five.
        method: how the interval was made.
    """

    diff: float
    low: float
    high: float
    level: float
    p: float
    n: int
    resolvable: float
    method: str


def paired_difference(
    a: Sequence[float],
    b: Sequence[float],
    *,
    trials: int = 1,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Difference:
    """Difference of two means over the same items, in the same order.

    The interval is the normal one after two items were added, one of +1 and one of -1, so that it
    never shrinks to a point. For pairs of right or wrong this is Bonett and Price's (2012); graded
    scores such as F1 get the same, and it is named as what it is. Where the scores are means of
    several trials, the added items differ by one trial, and the quantile is that of t.

    Args:
        a: one score an item.
        b: likewise.
        trials: answers that each score is the mean of.
        seed: of the test.
        level: of the interval.
        resamples: of the test.

    Raises:
        ValueError: different lengths, no items, a score outside 0 to 1.
    """
    deltas = _deltas(a, b)
    n = len(deltas)
    z = NormalDist().inv_cdf((1 + level) / 2)
    if trials > 1 and n > 1:
        method, quantile = REPEATED, t_quantile(n - 1, level)
    else:
        method = BINARY if np.isin(np.concatenate((a, b)), (0, 1)).all() else GRADED
        quantile = z
    added = 1 / trials
    centre = float(deltas.sum()) / (n + 2)
    variance = (float(np.square(deltas).sum()) + 2 * added**2) / (n + 2) - centre**2
    error = math.sqrt(variance / (n + 2))
    return Difference(
        diff=float(deltas.mean()),
        low=max(-1.0, centre - quantile * error),
        high=min(1.0, centre + quantile * error),
        level=level,
        p=sign_flip(deltas, seed, resamples),
        n=n,
        resolvable=min(1.0, (quantile + NormalDist().inv_cdf(POWER)) * error),
        method=method,
    )


def paired_bootstrap(
    a: Sequence[float],
    b: Sequence[float],
    *,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> tuple[float, float]:
    """Bootstrap interval of the difference; items are drawn, so their trials stay together.

    It has no width where all pairs differ by the same; `paired_difference` always has one.

    Raises:
        ValueError: as `paired_difference`.
    """
    kinds, often = np.unique(np.round(_deltas(a, b), 12), return_counts=True)
    n = int(often.sum())
    if n == 1:
        return float(kinds[0]), float(kinds[0])
    means = resampled_sums(kinds[None, :], often, seed, resamples)[:, 0] / n
    tail = NormalDist().cdf(-math.sqrt(n / (n - 1)) * t_quantile(n - 1, level))
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def unpaired_difference(a: Interval, b: Interval) -> Difference:
    """Difference of two independent scores from their intervals (Newcombe 1998, method 10).

    Wider than a paired one of the same items, and without a test.

    Raises:
        ValueError: intervals of different levels.
    """
    if a.level != b.level:
        raise ValueError("intervals of different levels")
    diff = a.value - b.value
    low = diff - math.hypot(a.value - a.low, b.high - b.value)
    high = diff + math.hypot(a.high - a.value, b.value - b.low)
    z = NormalDist().inv_cdf((1 + a.level) / 2)
    error = (high - low) / 2 / z
    resolvable = min(1.0, (z + NormalDist().inv_cdf(POWER)) * error)
    return Difference(diff, low, high, a.level, math.nan, min(a.n, b.n), resolvable, UNPAIRED)


def macro_difference(parts: Sequence[Difference], p: float) -> Difference:
    """Difference of two macro means from those of their categories; p is the whole test's.

    Raises:
        ValueError: no categories.
    """
    if not parts:
        raise ValueError("no categories")
    m = len(parts)
    diff = sum(part.diff for part in parts) / m
    return Difference(
        diff=diff,
        low=diff - math.hypot(*(part.diff - part.low for part in parts)) / m,
        high=diff + math.hypot(*(part.high - part.diff for part in parts)) / m,
        level=parts[0].level,
        p=p,
        n=sum(part.n for part in parts),
        resolvable=min(1.0, math.hypot(*(part.resolvable for part in parts)) / m),
        method=MACRO_PAIRED,
    )


def sign_flip(deltas: np.ndarray, seed: int, resamples: int) -> float:
    """Return p of the two-sided permutation test that swaps a and b item by item.

    Items that differ by the same amount are drawn together, as one binomial number.
    """
    sizes, often = np.unique(np.round(np.abs(deltas[deltas != 0]), 12), return_counts=True)
    if not len(sizes):
        return 1.0
    draw, totals = np.random.default_rng(seed), np.zeros(resamples)
    for size, items in zip(sizes, often, strict=True):
        totals += size * (2 * draw.binomial(items, 0.5, resamples) - items)
    as_far = np.abs(totals) >= abs(float(deltas.sum())) - 1e-9
    return float((as_far.sum() + 1) / (resamples + 1))


def _deltas(a: Sequence[float], b: Sequence[float]) -> np.ndarray:
    if len(a) != len(b):
        raise ValueError(f"{len(a)} scores against {len(b)}: not the same items")
    moved: np.ndarray = checked(a) - checked(b)
    return moved
