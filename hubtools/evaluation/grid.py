"""Scores of a run as a table of items by trials: all that statistics need to know of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Scores of one metric.

    Args:
        items: ids, in the suite's order.
        categories: of each item.
        scores: (items, trials) of float64 in 0 to 1; NaN where a sample failed or was not asked.
    """

    items: tuple[str, ...]
    categories: tuple[str, ...]
    scores: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """Scored trials of each item."""
        counted: np.ndarray = np.isfinite(self.scores).sum(axis=1)
        return counted

    @property
    def sums(self) -> np.ndarray:
        """Sum of scores of each item."""
        summed: np.ndarray = np.nansum(self.scores, axis=1)
        return summed

    @property
    def n(self) -> int:
        """Scored samples."""
        return int(self.counts.sum())

    @property
    def complete(self) -> bool:
        """Whether every trial of every item was scored."""
        return bool(np.isfinite(self.scores).all())

    @property
    def binary(self) -> bool:
        """Whether every score is 0 or 1."""
        scored = self.scores[np.isfinite(self.scores)]
        return bool(np.isin(scored, (0, 1)).all())

    def only(self, category: str) -> Grid:
        """The items of one category."""
        keep = [place for place, name in enumerate(self.categories) if name == category]
        return self._rows(keep)

    def scored(self) -> Grid:
        """The items of which at least one trial was scored."""
        return self._rows(np.flatnonzero(self.counts).tolist())

    def beside(self, others: Sequence[Grid]) -> Grid:
        """This grid and others of the same items: their trials become further trials.

        Raises:
            ValueError: other items.
        """
        if any(other.items != self.items for other in others):
            raise ValueError("not the same items")
        scores = np.hstack([self.scores, *(other.scores for other in others)])
        return Grid(self.items, self.categories, scores)

    def _rows(self, keep: Sequence[int]) -> Grid:
        items = tuple(self.items[place] for place in keep)
        categories = tuple(self.categories[place] for place in keep)
        return Grid(items, categories, self.scores[list(keep)])


def grids(samples: Iterable[Mapping[str, Any]], metrics: Sequence[str]) -> dict[str, Grid]:
    """Metric to its grid, in one pass over samples: `item`, `category`, `trial`, `scores` (None
    where it failed).

    Raises:
        ValueError: two samples of one item and trial.
        KeyError: a scored sample lacks a metric.
    """
    place: dict[str, int] = {}
    categories: list[str] = []
    rows: list[int] = []
    trials: list[int] = []
    values: list[list[float]] = []
    failed = [np.nan] * len(metrics)
    for sample in samples:
        item = sample["item"]
        if item not in place:
            place[item] = len(place)
            categories.append(sample["category"])
        rows.append(place[item])
        trials.append(sample.get("trial", 0))
        scores = sample["scores"]
        values.append(failed if scores is None else [scores[name] for name in metrics])
    if len(set(zip(rows, trials, strict=True))) != len(rows):
        raise ValueError("two samples of one item and trial")
    table = np.full((len(metrics), len(place), max(trials, default=-1) + 1), np.nan)
    if rows:
        table[:, rows, trials] = np.array(values, dtype=np.float64).T
    items = tuple(place)
    return {name: Grid(items, tuple(categories), table[at]) for at, name in enumerate(metrics)}
