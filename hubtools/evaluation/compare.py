"""Two checkpoints against each other: the same questions under one protocol, or no comparison."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from hubtools.errors import CheckError
from hubtools.evaluation.grid import Grid
from hubtools.evaluation.protocol import FieldDifference, differences
from hubtools.evaluation.records import Run
from hubtools.evaluation.repeats import distinct
from hubtools.evaluation.score import MACRO, WHOLE, pooled, scores
from hubtools.evaluation.statistics import enough
from hubtools.evaluation.statistics_many import holm, macro_weights
from hubtools.evaluation.statistics_paired import (
    Difference,
    macro_difference,
    paired_difference,
    sign_flip,
    unpaired_difference,
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`a` minus `b` on one metric.

    Args:
        a, b: members.
        diff, low, high, level, method: as in `statistics_paired.Difference`.
        n: items that were scored in both runs.
        p: of a two-sided sign-flip test.
        resolvable: the smallest true difference that n such items would show four times in five.
        within_noise: the interval holds zero; with `p_holm`, that is above 1 - level instead.
        p_holm: p corrected for the number of comparisons made together; None for a single one.
    """

    suite: str
    metric: str
    a: str
    b: str
    diff: float
    low: float
    high: float
    level: float
    n: int
    method: str
    p: float
    resolvable: float
    within_noise: bool
    protocol_id: str
    p_holm: float | None = None

    def __str__(self) -> str:
        corrected = "" if self.p_holm is None else f", {_p(self.p_holm)} after Holm"
        said = "within noise" if self.within_noise else "more than noise"
        return (
            f"{self.metric}: {self.a} - {self.b} = {self.diff:+.3f}"
            f" ({self.low:+.3f} to {self.high:+.3f}), {_p(self.p)}{corrected}: {said};"
            f" {self.n} questions in pairs show differences of {self.resolvable:.2f} and more"
        )


def compare(a: Run, b: Run, metric: str, *, seed: int = 0) -> Comparison:
    """Paired comparison over the items that both runs scored.

    Raises:
        CheckError: HT411 another protocol (the fields are named), HT412 other items, a metric
            that is not there, or no item scored in both.
    """
    return compare_repeats([a], [b], metric, seed=seed)


def compare_repeats(
    a: Sequence[Run], b: Sequence[Run], metric: str, *, part: str = WHOLE, seed: int = 0
) -> Comparison:
    """Likewise for several runs of each side, whose trials are put together item by item.

    Args:
        a: repeats of one checkpoint.
        b: repeats of another.
        metric: by name.
        part: `WHOLE`, or `MACRO` for the means over categories.
        seed: of the test.

    Raises:
        CheckError: as `compare`.
    """
    one, other = a[0], b[0]
    if one.protocol_id != other.protocol_id:
        said = [str(found) for found in differences(one.protocol, other.protocol)]
        raise CheckError(
            "HT411",
            f"{one.member} and {other.member} were measured under different protocols",
            where=str(other.path),
            detail=(f"They differ in {'; '.join(said)}.", "No difference was computed."),
            next="evaluate both in the same way: hubtools evaluate MODEL --again",
        )
    for run in (*a, *b):
        if metric not in run.metrics:
            known = ", ".join(run.metrics)
            raise _no(f"{run.member}: no metric {metric!r} in this run, only {known}", run)
        if metric not in run.grids:
            raise _no(f"{run.member}: figures alone, no samples to pair", run)
        if metric in one.grids and run.grids[metric].items != one.grids[metric].items:
            raise _no(f"{one.member} and {run.member} were asked different questions", run)
    difference = macro_paired if part == MACRO else paired
    found = difference(pooled(a, metric), pooled(b, metric), seed=seed)
    if found is None:
        every = " of every category" if part == MACRO else ""
        raise _no(
            f"{one.member} and {other.member} have no scored question{every} in common", other
        )
    return Comparison(
        suite=one.suite,
        metric=f"{part} {metric}".strip(),
        a=one.member,
        b=other.member,
        within_noise=found.low <= 0 <= found.high,
        protocol_id=one.protocol_id,
        **asdict(found),
    )


def against(
    baseline: Sequence[Run], others: Sequence[Sequence[Run]], metric: str, *, part: str = WHOLE
) -> list[Comparison]:
    """Each of the others minus the baseline, corrected for their number where there are several.

    Raises:
        CheckError: as `compare`.
    """
    return corrected([compare_repeats(other, baseline, metric, part=part) for other in others])


def compared(mine: Sequence[Run], others: Sequence[Sequence[Run]]) -> list[Comparison]:
    """This checkpoint minus each of the others, in every metric, corrected within the metric.

    Left out is what has nothing to pair: figures alone, or a category without a scored question.

    Raises:
        CheckError: as `compare`.
    """
    first = mine[0]
    parts = [WHOLE, MACRO] if first.macro else [WHOLE]
    return [
        made
        for part in parts
        for metric in first.grids
        for made in corrected(
            [
                compare_repeats(mine, other, metric, part=part)
                for other in others
                if pairable(mine, other, metric, part=part)
            ]
        )
    ]


def pairable(a: Sequence[Run], b: Sequence[Run], metric: str, *, part: str = WHOLE) -> bool:
    """Whether both scored some of the same questions, for a macro mean some of every category."""
    if any(metric not in run.grids for run in (*a, *b)):
        return False
    one = pooled(a, metric)
    both = _both(one, pooled(b, metric))
    categories = {one.categories[place] for place in both}
    return bool(len(both)) and (part != MACRO or categories == set(one.categories))


def corrected(made: Sequence[Comparison]) -> list[Comparison]:
    """Comparisons of one question each with Holm's correction for their number."""
    if len(made) < 2:
        return list(made)
    return [
        replace(one, p_holm=p, within_noise=one.within_noise or p > 1 - one.level)
        for one, p in zip(made, holm([one.p for one in made]), strict=True)
    ]


def paired(a: Grid, b: Grid, *, seed: int = 0) -> Difference | None:
    """The difference of the means over items that both scored; None where there are none."""
    both = _both(a, b)
    if not len(both):
        return None
    trials = min(a.scores.shape[1], b.scores.shape[1])
    means = [item_means(grid, both).tolist() for grid in (a, b)]
    return paired_difference(*means, trials=trials, seed=seed, resamples=enough(len(both)))


def macro_paired(a: Grid, b: Grid, *, seed: int = 0) -> Difference | None:
    """Likewise the difference of the means over categories; None where one has nothing to pair."""
    found = [paired(a.only(name), b.only(name)) for name in dict.fromkeys(a.categories)]
    parts = [part for part in found if part]
    if not parts or len(parts) < len(found):
        return None
    both = _both(a, b)
    weights = macro_weights([a.categories[place] for place in both])
    deltas = (item_means(a, both) - item_means(b, both)) * weights
    return macro_difference(parts, sign_flip(deltas, seed, enough(len(both))))


def item_means(grid: Grid, places: np.ndarray) -> np.ndarray:
    """Mean score of each of these items over its scored trials."""
    means: np.ndarray = grid.sums[places] / grid.counts[places]
    return means


def _both(a: Grid, b: Grid) -> np.ndarray:
    return np.flatnonzero((a.counts > 0) & (b.counts > 0))


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why the figures of two runs may or may not be compared.

    Args:
        a, b: who they are.
        comparable: whether a difference of the two says anything about the checkpoints.
        reasons: in words, what speaks for and against it.
        differing: fields of the protocols that are not the same.
        comparisons: differences by metric, where they may be made.
    """

    a: str
    b: str
    comparable: bool
    reasons: tuple[str, ...]
    differing: tuple[FieldDifference, ...]
    comparisons: tuple[Comparison, ...]

    def lines(self) -> list[str]:
        """As text, the verdict first."""
        verdict = "may be compared" if self.comparable else "may not be compared"
        return [
            f"{self.a} and {self.b} {verdict}",
            *(f"  {reason}" for reason in self.reasons),
            *(f"  {found}" for found in self.differing),
            *(f"  {made}" for made in self.comparisons),
        ]

    def to_json(self) -> dict[str, Any]:
        """JSON object."""
        return {**asdict(self), "text": self.lines()}


def explain(a: Run, b: Run) -> Explanation:
    """Whether and why two numbers may be compared, and what comes of it where they may."""
    if a.suite != b.suite:
        other = f"different suites: {a.suite} and {b.suite}"
        return Explanation(a.member, b.member, False, (other,), (), ())
    reasons, shared = _reasons(a, b), [name for name in a.metrics if name in b.metrics]
    differing = tuple(differences(a.protocol, b.protocol))
    comparable = a.protocol_id == b.protocol_id and bool(shared)
    comparisons: list[Comparison] = []
    parts = [MACRO, WHOLE] if a.macro and b.macro else [WHOLE]
    for metric, part in itertools.product(shared if comparable else (), parts):
        try:
            comparisons.append(compare_repeats([a], [b], metric, part=part))
        except CheckError as error:
            reasons += [f"{metric}: {error.message}", *_unpaired(a, b, metric)]
    return Explanation(
        a=a.member,
        b=b.member,
        comparable=bool(comparisons),
        reasons=tuple(reasons),
        differing=differing,
        comparisons=tuple(comparisons),
    )


def _reasons(a: Run, b: Run) -> list[str]:
    same = a.protocol_id == b.protocol_id
    reasons = [
        f"protocol {a.protocol_id[:12]} for both"
        if same
        else f"the protocols differ ({a.protocol_id[:12]} and {b.protocol_id[:12]}):"
        " a difference of the figures may come from any of the fields below"
    ]
    ids = [{i for grid in run.grids.values() for i in grid.items} for run in (a, b)]
    common = len(ids[0] & ids[1])
    reasons.append(f"{common} questions in common, of {len(ids[0])} and {len(ids[1])}")
    for run in (a, b):
        weights = f"weights {run.weights[:12]}" if run.weights else "weights unknown"
        reasons.append(f"{run.member}: {run.status}, {weights}, seed {run.seed}")
        if run.missing:
            reasons.append(f"{run.member}: not recorded: {', '.join(run.missing)}")
        if run.failures:
            reasons.append(f"{run.member}: failed samples, not scored: {run.failures}")
    if same and len(distinct([a, b])) == 1:
        reasons.append(f"all {min(a.n, b.n)} answers that both have are equal")
    elif a.weights and a.weights == b.weights:
        what = "chance" if same else "chance or the protocol"
        reasons.append(f"the weights are the same: what differs is {what}")
    return reasons


def _unpaired(a: Run, b: Run, metric: str) -> list[str]:
    """What the figures alone say, where nothing can be paired."""
    intervals = [
        score.interval
        for run in (a, b)
        for score in scores([run])
        if (score.metric, score.part) == (metric, WHOLE) and score.interval is not None
    ]
    if len(intervals) < 2:
        return []
    found = unpaired_difference(*intervals)
    return [
        f"{metric}: {a.member} - {b.member} = {found.diff:+.3f} ({found.low:+.3f} to"
        f" {found.high:+.3f}), unpaired: wider than pairs of the same questions would be"
    ]


def _p(p: float) -> str:
    return f"p {p:.3f}" if p >= 0.001 else "p < 0.001"


def _no(message: str, run: Run) -> CheckError:
    return CheckError(
        "HT412",
        message,
        where=str(run.path),
        detail=("No difference was computed.",),
        next="evaluate both on the same suite: hubtools evaluate MODEL --suite NAME --again",
    )
