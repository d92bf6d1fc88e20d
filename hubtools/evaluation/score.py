"""The figures of one checkpoint under one protocol, from one run or from its repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hubtools.evaluation.grid import Grid
from hubtools.evaluation.repeats import distinct
from hubtools.evaluation.statistics import Interval, interval, macro, wilson
from hubtools.evaluation.statistics_trials import (
    Repeats,
    both_conventions,
    pass_at_k,
    pass_hat_k,
    repeats,
)

if TYPE_CHECKING:
    from hubtools.evaluation.records import Run

WHOLE, MACRO = "", "macro"


@dataclass(frozen=True, slots=True)
class Score:
    """One figure.

    Args:
        metric: its name.
        part: `WHOLE`, `MACRO` or a category.
        value: mean over all scored samples of all runs.
        values: of each run, in their order.
        interval: of the value; None where no samples are known.
        n: scored samples, of all runs.
        items: questions of which one sample or more was scored.
        k: successes, where every score is 0 or 1 and the value is their share.
        as_zero: the value if failed samples counted as 0; None where none failed.
        repeats: spread over the runs, where several have answers of their own.
        passes: `pass@k` and `pass^k` by name, where items were answered several times.
        runs: how many there were; those with the same answers count once in all of the above.
    """

    metric: str
    part: str
    value: float
    values: tuple[float, ...]
    interval: Interval | None
    n: int
    items: int
    k: int | None = None
    as_zero: float | None = None
    repeats: Repeats | None = None
    passes: Mapping[str, Interval] | None = None
    runs: int = 1

    @property
    def name(self) -> str:
        """`em`, `macro em`, `nq em`."""
        return f"{self.part} {self.metric}".strip()

    def to_json(self) -> dict[str, Any]:
        """JSON object without what is not known."""
        found: dict[str, Any] = {"value": self.value, "n": self.n, "items": self.items}
        if self.k is not None:
            found["k"] = self.k
        if self.interval is not None:
            found["interval"] = interval_json(self.interval)
        if self.as_zero is not None:
            found["failures_as_zero"] = self.as_zero
        if self.runs > 1:
            found["runs"] = self.runs
        if self.repeats is not None:
            sure = self.repeats
            found["repeats"] = {
                **{"values": list(sure.values), "mean": sure.mean, "sd": sure.sd, "sem": sure.sem},
                "sd_uncertainty": sure.sd_uncertainty,
            }
        for name, chance in (self.passes or {}).items():
            found[name] = {"value": chance.value, "interval": interval_json(chance)}
        return found


def interval_json(found: Interval) -> dict[str, Any]:
    """`low`, `high`, `level`, `method`."""
    return {"low": found.low, "high": found.high, "level": found.level, "method": found.method}


def scores(runs: Sequence[Run]) -> list[Score]:
    """Every figure of runs that measured the same: whole, macro where the suite says so, parts.

    There is no macro mean where a category has no scored sample: one over fewer categories is
    another figure.

    Raises:
        ValueError: the runs have other items.
    """
    found, own = [], distinct(runs)
    for metric in metric_names(runs[0]):
        if all(has_samples(run, metric) for run in own):
            grids = [run.grids[metric] for run in own]
            found += _measured(metric, grids, macro_too=is_macro(runs[0]))
        else:
            found.append(_told(metric, [run.metrics[metric] for run in own]))
    return [replace(score, runs=len(runs)) for score in found]


def metric_names(run: Run) -> list[str]:
    """Metrics in the suite's order; of a run that was only reported, as it tells them."""
    return list(run.grids or run.metrics)


def has_samples(run: Run, metric: str) -> bool:
    """Whether the scores behind a figure are there, and not the figure alone."""
    return metric in run.grids and run.grids[metric].n > 0


def questions(run: Run) -> tuple[str, ...]:
    """Ids of what was asked, in order; none where only figures are known."""
    return next((grid.items for grid in run.grids.values()), ())


def is_macro(run: Run) -> bool:
    """Whether the suite's figure is the mean of its categories."""
    return str(run.protocol.get("reducer", "")).endswith(MACRO)


def pooled(runs: Sequence[Run], metric: str) -> Grid:
    """All trials of all runs with answers of their own, by item."""
    first, *others = (run.grids[metric] for run in distinct(runs))
    return first.beside(others) if others else first


def _measured(metric: str, grids: Sequence[Grid], *, macro_too: bool) -> list[Score]:
    categories = list(dict.fromkeys(grids[0].categories))
    parts = []
    if len(categories) > 1:
        for category in categories:
            of = [grid.only(category) for grid in grids]
            if all(grid.n for grid in of):
                parts.append(_score(metric, category, of))
    whole = [_score(metric, WHOLE, grids)]
    if macro_too and len(categories) == 1:
        whole.insert(0, replace(whole[0], part=MACRO, k=None, passes=None))
    elif macro_too and len(parts) == len(categories):
        whole.insert(0, _macro(metric, parts))
    return whole + parts


def _score(metric: str, part: str, grids: Sequence[Grid]) -> Score:
    together = grids[0].beside(grids[1:])
    found = interval(together)
    values = tuple(float(grid.sums.sum()) / grid.n for grid in grids)
    failed = together.n < together.scores.size
    return Score(
        metric=metric,
        part=part,
        value=found.value,
        values=values,
        interval=found,
        n=together.n,
        items=len(together.scored().items),
        k=round(float(together.sums.sum())) if together.binary else None,
        as_zero=both_conventions(together, together.scores.size)[1] if failed else None,
        repeats=repeats(values) if len(values) > 1 else None,
        passes=_passes(together),
    )


def _macro(metric: str, parts: Sequence[Score]) -> Score:
    found = macro({part.part: part.interval for part in parts if part.interval})
    values = tuple(
        sum(of) / len(parts) for of in zip(*(part.values for part in parts), strict=True)
    )
    zeroes = [part.value if part.as_zero is None else part.as_zero for part in parts]
    return Score(
        metric=metric,
        part=MACRO,
        value=found.value,
        values=values,
        interval=found,
        n=found.n,
        items=sum(part.items for part in parts),
        as_zero=sum(zeroes) / len(zeroes) if any(p.as_zero is not None for p in parts) else None,
        repeats=repeats(values) if len(values) > 1 else None,
    )


def _passes(grid: Grid) -> dict[str, Interval] | None:
    """For k = 2, 4, 8, … and all trials, as far as every item has them."""
    trials = int(grid.scored().counts.min())
    if trials < 2 or not grid.binary or len(grid.scored().items) < len(grid.items):
        return None
    ks = sorted({trials, *(2**power for power in range(1, trials.bit_length()))})
    at = {f"pass@{k}": pass_at_k(grid, k) for k in ks if k <= trials}
    return at | {f"pass^{k}": pass_hat_k(grid, k) for k in ks if k <= trials}


def _told(metric: str, figures: Sequence[Mapping[str, Any]]) -> Score:
    """A figure whose samples nobody has: no interval beyond what k of n gives."""
    values = tuple(float(figure["value"]) for figure in figures)
    ns, ks = [int(f.get("n", 0)) for f in figures], [f.get("k") for f in figures]
    n, k = sum(ns), None if None in ks else sum(int(k) for k in ks if k is not None)
    return Score(
        metric=metric,
        part=WHOLE,
        value=sum(values) / len(values),
        values=values,
        interval=wilson(k, n) if k is not None and n and len(figures) == 1 else None,
        n=n,
        items=max(int(figure.get("items", figure.get("n", 0))) for figure in figures),
        k=k,
        repeats=repeats(values) if len(values) > 1 else None,
    )
