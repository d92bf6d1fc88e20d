"""The score so far, for those who watch a run."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable, Mapping
from typing import Any

from eval_harness.scoring import score
from eval_harness.suite_model import Suite

Progress = Callable[[str, int, int | None, str], None]
EVERY = 0.1
"""Seconds between two words, however quick the answers come."""
Z = 1.959964
_ABSENT, _FAILED = -1.0, -2.0


class Live:
    """Counts samples and scores them by the suite's first metric, with Wilson's 95 % interval.

    `done` samples are there.
    """

    def __init__(self, suite: Suite, progress: Progress) -> None:
        self._suite, self._progress = suite, progress
        self._metric = suite.metrics[0].to_json()
        self._scores = array("d", [_ABSENT]) * suite.size
        self.done = 0
        self._total, self._n = 0.0, 0
        self._due = 0.0

    def add(self, place: int, outcome: Mapping[str, Any]) -> None:
        """The outcome of the sample at `place`; a second one takes the first one's place."""
        self.forget(place)
        self._scores[place] = value = self._score(place, outcome)
        self.done += 1
        if value >= 0:
            self._total, self._n = self._total + value, self._n + 1

    def forget(self, place: int) -> None:
        """The sample will be asked again."""
        value, self._scores[place] = self._scores[place], _ABSENT
        self.done -= value != _ABSENT
        if value >= 0:
            self._total, self._n = self._total - value, self._n - 1

    def tell(self, *, now: bool = False) -> None:
        """Tell how far the run is; all but the last word may be skipped."""
        if not now and self.done < self._suite.size and time.monotonic() < self._due:
            return
        self._due = time.monotonic() + EVERY
        self._progress(f"evaluate {self._suite.id}", self.done, self._suite.size, self._unit())

    def _unit(self) -> str:
        if not self._n:
            return "samples"
        n, p = self._n, self._total / self._n
        centre = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
        half = Z / (1 + Z * Z / n) * math.sqrt(max(0.0, p * (1 - p) / n) + Z * Z / (4 * n * n))
        low, high = max(0.0, centre - half), min(1.0, centre + half)
        return f"samples · {self._metric['name']} {p:.2f} ({low:.2f}–{high:.2f})"

    def _score(self, place: int, outcome: Mapping[str, Any]) -> float:
        if outcome["failure"]:
            return _FAILED
        item, _ = self._suite.at(place)
        prompt, transcript = self._suite.messages(item), outcome["transcript"]
        made = score([self._metric], item.answers, prompt, transcript, outcome["finish"])
        return float(made["scores"][self._metric["name"]])
