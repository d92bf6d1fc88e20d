"""How sure a mean score is. Pure; numpy.

Every interval here has a width and holds its value: a score of 0 or 1 on n items still leaves room
for what n items cannot show. What they cover is simulated in `benchmarks/coverage.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from hubtools.evaluation.grid import Grid

LEVEL = 0.95
RESAMPLES, MANY = 10_000, 10_000
CLUSTERED = "by item, t (Wilson on the effective number of samples)"
BOOTSTRAP = "bootstrap"
MACRO = "mean of category intervals"


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval for a mean of scores between 0 and 1; n is the number of samples."""

    value: float
    low: float
    high: float
    level: float
    method: str
    n: int


def interval(grid: Grid, *, level: float = LEVEL) -> Interval:
    """The interval that fits the scores: clustered where items were answered several times, else
    Wilson's for 0 and 1 and the bootstrap for graded ones.

    Raises:
        ValueError: no scores.
    """
    if grid.scores.shape[1] > 1 and grid.n:
        return clustered(grid, level=level)
    scores = grid.scores[np.isfinite(grid.scores)]
    if len(scores) and grid.binary:
        return wilson(float(scores.sum()), len(scores), level)
    return bootstrap_mean(scores.tolist(), level=level, resamples=enough(len(scores)))


def enough(items: int) -> int:
    """How many resamples: fewer where the items are so many that their ends hardly move."""
    return RESAMPLES if items <= MANY else RESAMPLES // 5


def wilson(k: float, n: float, level: float = LEVEL) -> Interval:
    """Wilson's score interval for k successes in n.

    Raises:
        ValueError: n < 1, or k outside 0 to n.
    """
    if n < 1 or not 0 <= k <= n:
        raise ValueError(f"{k} successes in {n} is not a proportion")
    low, high = _wilson(k / n, n, _z(level))
    return Interval(k / n, low, high, level, "Wilson", int(n))


def clustered(grid: Grid, *, level: float = LEVEL, samples: int | None = None) -> Interval:
    """Interval for the mean over all samples, where the trials of an item are alike.

    The variance between items gives the number of independent samples that would be as sure, at
    least one an item and at most one a sample; Wilson's interval is taken at that number, with the
    t quantile of items - 1 degrees of freedom (the form of Korn and Graubard, 1998).

    Args:
        grid: the scores.
        level: of the interval.
        samples: how many answers are behind the scores, where each score is made of several.

    Raises:
        ValueError: no scores.
    """
    sums, counts = _clusters(grid)
    items, n = len(sums), int(counts.sum())
    value = float(sums.sum()) / n
    effective, quantile = 1.0, _z(level)
    if items > 1:
        between = float(np.square(sums - value * counts).sum()) * items / (items - 1)
        spread = between / n**2
        alone = value * (1 - value)
        ideal = alone / spread if spread > 0 else math.inf if alone > 0 else items
        effective, quantile = min(max(ideal, items), samples or n), t_quantile(items - 1, level)
    low, high = _wilson(value, effective, quantile)
    return Interval(value, low, high, level, CLUSTERED, samples or n)


def bootstrap_mean(
    scores: Sequence[float], *, seed: int = 0, level: float = LEVEL, resamples: int = RESAMPLES
) -> Interval:
    """Bootstrap interval for the mean of scores between 0 and 1, one an item.

    Raises:
        ValueError: no scores, or one outside 0 to 1.
    """
    values = checked(scores)
    return _bootstrap(values, np.ones(len(values)), seed, level, resamples)


def cluster_bootstrap(
    grid: Grid, *, seed: int = 0, level: float = LEVEL, resamples: int = RESAMPLES
) -> Interval:
    """Bootstrap interval for the mean over all samples; whole items are drawn.

    Raises:
        ValueError: no scores.
    """
    return _bootstrap(*_clusters(grid), seed, level, resamples)


def macro(parts: Mapping[str, Interval]) -> Interval:
    """The unweighted mean of categories, with the root of the summed squares of their half-widths
    (on each side) over their number: for wide categories value ± z √Σse² / m.

    Raises:
        ValueError: no categories.
    """
    if not parts:
        raise ValueError("no categories")
    of, m = list(parts.values()), len(parts)
    value = sum(part.value for part in of) / m
    below = math.hypot(*(part.value - part.low for part in of)) / m
    above = math.hypot(*(part.high - part.value for part in of)) / m
    method = f"{MACRO}: {', '.join(dict.fromkeys(part.method for part in of))}"
    n = sum(part.n for part in of)
    return Interval(value, value - below, value + above, of[0].level, method, n)


@lru_cache(maxsize=512)
def t_quantile(df: int, level: float = LEVEL) -> float:
    """|t| that Student's t with `df` degrees of freedom stays within with probability `level`.

    By bisection of the finite sums for whole df (Abramowitz and Stegun 26.7.3–4), by their
    expansion (26.7.5) above 100: the base install has no scipy.

    Raises:
        ValueError: df < 1, or a level outside 0 to 1.
    """
    z = _z(level)
    if df < 1:
        raise ValueError(f"{df} degrees of freedom")
    if df > 100:
        first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
        third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
        return z + first / df + second / df**2 + third / df**3
    low, high = 0.0, math.pi / 2  # of the angle whose tangent is t / √df
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (angle, high) if _within(angle, df) < level else (low, angle)
    return math.tan(high) * math.sqrt(df)


def _within(angle: float, df: int) -> float:
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = df % 2
    term = cosine if odd else 1.0
    total = term if df > 1 else 0.0
    for step in range(2 + odd, df, 2):
        term *= cosine**2 * (step - 1) / step
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def _wilson(p: float, n: float, z: float) -> tuple[float, float]:
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = 0.0 if p == 0 else min(p, max(0.0, centre - half))
    high = 1.0 if p == 1 else max(p, min(1.0, centre + half))
    return low, high


def _bootstrap(
    sums: np.ndarray, counts: np.ndarray, seed: int, level: float, resamples: int
) -> Interval:
    """Percentiles, moved outwards to Student's t for few items (Hesterberg, 2015).

    Where all items are alike, resampling shows nothing and Wilson's interval is given.
    """
    n, items = int(counts.sum()), len(sums)
    value = float(sums.sum()) / n
    if np.ptp(sums / counts) < 1e-12:
        return wilson(min(value, 1.0) * items, items, level)
    kinds, often = np.unique(np.stack((sums, counts)), axis=1, return_counts=True)
    drawn = resampled_sums(kinds, often, seed, resamples)
    outward = math.sqrt(items / (items - 1)) * t_quantile(items - 1, level)
    tail = NormalDist().cdf(-outward)
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], [tail, 1 - tail])
    return Interval(value, min(float(low), value), max(float(high), value), level, BOOTSTRAP, n)


def resampled_sums(kinds: np.ndarray, often: np.ndarray, seed: int, resamples: int) -> np.ndarray:
    """(resamples, quantities): sums over as many items drawn with replacement.

    Args:
        kinds: (quantities, kinds of item) of float64.
        often: how many items there are of each kind; few kinds make this quick for many items.
        seed: of the draws.
        resamples: how many.
    """
    draw, items = np.random.default_rng(seed), int(often.sum())
    step = max(1, 4_000_000 // len(often))
    return np.concatenate(
        [
            draw.multinomial(items, often / items, min(step, resamples - start)) @ kinds.T
            for start in range(0, resamples, step)
        ]
    )


def _clusters(grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    kept = grid.scored()
    checked(kept.scores[np.isfinite(kept.scores)])
    return kept.sums, kept.counts.astype(np.float64)


def checked(scores: Sequence[float] | np.ndarray) -> np.ndarray:
    """Scores as an array.

    Raises:
        ValueError: there are none, or one is not between 0 and 1.
    """
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
