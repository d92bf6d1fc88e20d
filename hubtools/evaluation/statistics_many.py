"""What many comparisons and a chosen best are worth. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np


def holm(ps: Sequence[float]) -> list[float]:
    """Correct p values for their number (Holm, 1979), in the order given.

    Raises:
        ValueError: one is not between 0 and 1.
    """
    if not all(0 <= p <= 1 for p in ps):
        raise ValueError("a p value is not between 0 and 1")
    corrected, so_far = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        so_far = max(so_far, min(1.0, (len(ps) - rank) * ps[place]))
        corrected[place] = so_far
    return corrected


def macro_weights(categories: Sequence[str]) -> np.ndarray:
    """Weight of each item, 1 on average, that makes the mean over items that over categories."""
    sizes = Counter(categories)
    return np.array([len(categories) / (len(sizes) * sizes[name]) for name in categories])


@dataclass(frozen=True, slots=True)
class Selection:
    """What it means that the best of several was picked.

    Args:
        of: how many there were to pick from.
        lead: by how much the best lies above their mean.
        by_chance: by how much it would on average, if none were better than another.
    """

    of: int
    lead: float
    by_chance: float


def selection(scores: np.ndarray) -> Selection:
    """Selection disclosure for the best of several checkpoints.

    If no checkpoint were better, their scores on an item would be exchangeable: the means then vary
    by the variance within items over the number of items, and the best of m lies above the mean of
    all by E[max of m normal numbers] times its root.

    Args:
        scores: (items, checkpoints) of float64; one score an item, or the mean of its trials,
            times the item's weight where the figure is a macro mean.

    Raises:
        ValueError: fewer than two checkpoints, or no items.
    """
    items, m = scores.shape
    if m < 2 or not items:
        raise ValueError("nothing to select from")
    means = scores.mean(axis=0)
    within = float(scores.var(axis=1, ddof=1).mean())
    by_chance = expected_maximum(m) * math.sqrt(within / items)
    return Selection(m, float(means.max() - means.mean()), by_chance)


@lru_cache(maxsize=64)
def expected_maximum(m: int) -> float:
    """Mean of the largest of m independent standard normal numbers: ∫ x m φ(x) Φ(x)^(m-1) dx."""
    x = np.linspace(-9, 9, 4001)
    below = np.array([NormalDist().cdf(float(value)) for value in x])
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return float(np.sum(x * m * density * below ** (m - 1)) * (x[1] - x[0]))
