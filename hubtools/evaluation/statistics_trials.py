"""Several answers to one question, several runs of one suite. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hubtools.evaluation.grid import Grid
from hubtools.evaluation.statistics import LEVEL, Interval, checked, clustered, t_quantile


def mean_at_k(grid: Grid, k: int) -> Interval:
    """mean@k: the mean over items of the mean of their k trials, with its clustered interval.

    Raises:
        ValueError: not every item has exactly k scored trials.
    """
    if grid.scores.shape[1] != k or not grid.complete:
        raise ValueError(f"mean@{k} needs {k} scored trials of every item")
    return clustered(grid)


def pass_at_k(grid: Grid, k: int) -> Interval:
    """pass@k, the chance that at least one of k trials succeeds: 1 - C(n-c, k) / C(n, k).

    Unbiased for c successes in n trials, averaged over items.

    Raises:
        ValueError: an item has fewer than k scored trials, or scores between 0 and 1.
    """
    return _over_items(grid, k, "pass@k")


def pass_hat_k(grid: Grid, k: int) -> Interval:
    """pass^k, the chance that all of k trials succeed: C(c, k) / C(n, k).

    Unbiased for c successes in n trials, averaged over items.

    Raises:
        ValueError: as `pass_at_k`.
    """
    return _over_items(grid, k, "pass^k")


def _over_items(grid: Grid, k: int, kind: Literal["pass@k", "pass^k"]) -> Interval:
    name = kind.replace("k", str(k))
    if not len(grid.items):
        raise ValueError(f"{name} of no items")
    if not 1 <= k <= int(grid.counts.min()):
        raise ValueError(f"{name}: some item has only {int(grid.counts.min())} scored trials")
    if not grid.binary:
        raise ValueError(f"{name} needs scores of 0 or 1")
    chances = [
        math.comb(int(c), k) / math.comb(int(n), k)
        if kind == "pass^k"
        else 1 - math.comb(int(n - c), k) / math.comb(int(n), k)
        for c, n in zip(grid.sums, grid.counts, strict=True)
    ]
    made = Grid(grid.items, grid.categories, np.array(chances)[:, None])
    return clustered(made, samples=grid.n)


@dataclass(frozen=True, slots=True)
class Repeats:
    """The same measurement made several times.

    Args:
        values: as they came.
        mean: of them.
        sd: sample standard deviation (k - 1 below); 0 only where all are equal.
        sd_uncertainty: of the sd itself, as a part of it: 1 / √(2 (k - 1)).
        sem: sd / √k.
        low, high: t interval of the mean at 95 %; what k repeats say of more repeats.
    """

    values: tuple[float, ...]
    mean: float
    sd: float
    sd_uncertainty: float
    sem: float
    low: float
    high: float

    @property
    def k(self) -> int:
        """How many."""
        return len(self.values)

    def sampling_sd(self, n: int) -> float:
        """The sd that n independent questions alone give: an observed one near it, or below, says
        nothing beyond the number of questions.
        """
        return math.sqrt(self.mean * (1 - self.mean) / n)


def repeats(values: Sequence[float]) -> Repeats:
    """Spread of repeated measurements.

    Raises:
        ValueError: fewer than two, or one outside 0 to 1.
    """
    found = checked(values)
    k = len(found)
    if k < 2:
        raise ValueError("one value has no spread")
    mean, sd = float(found.mean()), float(found.std(ddof=1))
    sem = sd / math.sqrt(k)
    half = t_quantile(k - 1, LEVEL) * sem
    return Repeats(
        values=tuple(map(float, values)),
        mean=mean,
        sd=0.0 if len(set(values)) == 1 else sd,
        sd_uncertainty=1 / math.sqrt(2 * (k - 1)),
        sem=sem,
        low=max(0.0, mean - half),
        high=min(1.0, mean + half),
    )


def both_conventions(grid: Grid, asked: int) -> tuple[float, float]:
    """The mean with failed samples left out, and with them as 0, of `asked` samples.

    Raises:
        ValueError: no scores, or fewer asked than scored.
    """
    if not 0 < grid.n <= asked:
        raise ValueError(f"{grid.n} scored of {asked} asked")
    total = float(grid.sums.sum())
    return total / grid.n, total / asked
