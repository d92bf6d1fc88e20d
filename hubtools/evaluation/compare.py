"""Two runs against each other: the same questions under one protocol, or no comparison."""

from __future__ import annotations

from dataclasses import dataclass

from hubtools.errors import CheckError
from hubtools.evaluation.protocol import differing_fields
from hubtools.evaluation.records import Run
from hubtools.evaluation.statistics_paired import paired_difference


@dataclass(frozen=True, slots=True)
class Comparison:
    """`a` minus `b` on one metric.

    Args:
        a, b: members.
        diff, low, high, level, method: as in `statistics.Difference`.
        n: items that were scored in both runs.
        p: of a two-sided sign-flip test.
        resolvable: the smallest true difference that n such items would show four times in five.
        within_noise: the interval holds zero.
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


def compare(a: Run, b: Run, metric: str, *, seed: int = 0) -> Comparison:
    """Paired comparison over the items that both runs scored.

    Raises:
        CheckError: HT411 another protocol (the fields are named), HT412 other items, a metric
            that is not there, or no item scored in both.
    """
    if a.protocol_id != b.protocol_id:
        fields = differing_fields(a.protocol, b.protocol)
        raise CheckError(
            "HT411",
            f"{a.member} and {b.member} were measured under different protocols",
            where=str(b.path),
            detail=(f"They differ in: {', '.join(fields)}.", "No difference was computed."),
            next="evaluate both in the same way: hubtools evaluate MODEL --again",
        )
    for run in (a, b):
        if metric not in run.metrics:
            known = ", ".join(run.metrics)
            raise _no(f"{run.member}: no metric {metric!r} in this run, only {known}", run)
    if [s["item"] for s in a.samples] != [s["item"] for s in b.samples]:
        raise _no(f"{a.member} and {b.member} were asked different questions", b)
    mine, theirs = a.scores(metric), b.scores(metric)
    both = [item for item in mine if item in theirs]
    if not both:
        raise _no(f"{a.member} and {b.member} have no scored question in common", b)
    found = paired_difference([mine[i] for i in both], [theirs[i] for i in both], seed=seed)
    return Comparison(
        suite=a.suite,
        metric=metric,
        a=a.member,
        b=b.member,
        diff=found.diff,
        low=found.low,
        high=found.high,
        level=found.level,
        n=found.n,
        method=found.method,
        p=found.p,
        resolvable=found.resolvable,
        within_noise=found.low <= 0 <= found.high,
        protocol_id=a.protocol_id,
    )


def _no(message: str, run: Run) -> CheckError:
    return CheckError(
        "HT412",
        message,
        where=str(run.path),
        detail=("No difference was computed.",),
        next="evaluate both on the same suite: hubtools evaluate MODEL --suite NAME --again",
    )
