"""How sure a score is, and whether two scores differ. Pure; numpy.

Every interval here has a width: a score of 0 or 1 on n items, or two runs that agree on all of
them, still leave room for what n items cannot show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

LEVEL = 0.95
POWER = 0.8
BINARY = "paired, Bonett-Price"
GRADED = "paired, normal with one item added each way"
RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval for a mean of scores between 0 and 1."""

    value: float
    low: float
    high: float
    level: float
    method: str
    n: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of a minus mean of b over the same items.

    Args:
        diff: the difference as observed.
        low, high: its interval at `level`.
        p: of a two-sided sign-flip test.
        n: items.
        resolvable: the smallest true difference that n such items would show four times in five.
        method: `BINARY` where every score is 0 or 1, else `GRADED`.
    """

    diff: float
    low: float
    high: float
    level: float
    p: float
    n: int
    resolvable: float
    method: str


def wilson(k: float, n: int, level: float = LEVEL) -> Interval:
    """Wilson's score interval for k successes in n.

    Raises:
        ValueError: n < 1, or k outside 0 to n.
    """
    if n < 1 or not 0 <= k <= n:
        raise ValueError(f"{k} successes in {n} is not a proportion")
    z, p = _z(level), k / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = 0.0 if k == 0 else max(0.0, centre - half)
    high = 1.0 if k == n else min(1.0, centre + half)
    return Interval(p, low, high, level, "Wilson", n)


def bootstrap_mean(
    scores: Sequence[float], *, seed: int = 0, level: float = LEVEL, resamples: int = RESAMPLES
) -> Interval:
    """Percentile bootstrap interval for the mean of scores between 0 and 1.

    Where all scores are equal, resampling shows nothing and Wilson's interval is given.

    Raises:
        ValueError: no scores, or one outside 0 to 1.
    """
    values = _scores(scores)
    if np.all(values == values[0]):
        return wilson(float(values.sum()), len(values), level)
    draw = np.random.default_rng(seed)
    means = values[draw.integers(0, len(values), (resamples, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(values.mean()), float(low), float(high), level, "bootstrap", len(values))


def paired_difference(
    a: Sequence[float],
    b: Sequence[float],
    *,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Difference:
    """Difference of two means over the same items, in the same order.

    The interval is the normal one after two items were added, one of +1 and one of -1, so that it
    never shrinks to a point. For pairs of right or wrong this is Bonett and Price's (2012); graded
    scores such as F1 get the same, and it is named as what it is.

    Raises:
        ValueError: different lengths, no items, a score outside 0 to 1.
    """
    if len(a) != len(b):
        raise ValueError(f"{len(a)} scores against {len(b)}: not the same items")
    scores_a, scores_b = _scores(a), _scores(b)
    binary = np.isin(np.concatenate((scores_a, scores_b)), (0, 1)).all()
    deltas = scores_a - scores_b
    n, z = len(deltas), _z(level)
    centre = float(deltas.sum()) / (n + 2)
    variance = (float(np.square(deltas).sum()) + 2) / (n + 2) - centre**2
    error = math.sqrt(variance / (n + 2))
    return Difference(
        diff=float(deltas.mean()),
        low=max(-1.0, centre - z * error),
        high=min(1.0, centre + z * error),
        level=level,
        p=_sign_flip(deltas, seed, resamples),
        n=n,
        resolvable=min(1.0, (z + NormalDist().inv_cdf(POWER)) * error),
        method=BINARY if binary else GRADED,
    )


def _sign_flip(deltas: np.ndarray, seed: int, resamples: int) -> float:
    moved = deltas[deltas != 0]
    if not len(moved):
        return 1.0
    signs = np.random.default_rng(seed).choice((-1.0, 1.0), (resamples, len(moved)))
    as_far = np.abs(signs @ moved) >= abs(float(moved.sum())) - 1e-9
    return float((as_far.sum() + 1) / (resamples + 1))


def _scores(scores: Sequence[float]) -> np.ndarray:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError("no scores")
    if not np.all((values >= 0) & (values <= 1)):  # also refuses NaN
        raise ValueError("a score is not between 0 and 1")
    return values


def _z(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"level {level} is not between 0 and 1")
    return NormalDist().inv_cdf((1 + level) / 2)
