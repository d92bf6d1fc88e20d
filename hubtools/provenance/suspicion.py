"""Signs that logs were altered or misdated (pure): what is wrong, and where to look.

One is enough for the verdict SUSPECT.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from hubtools.provenance.counts import Tally
from hubtools.provenance.judge import Judge
from hubtools.provenance.names import shown

Cause = Literal["changed response", "duplicate key", "before its time"]


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One sign.

    Args:
        cause: what sort of sign, for the advice that fits it.
        where: `file:line` of the first; empty when its place was not kept.
        text: what was seen, as part of a sentence.
        more: further places, or the source of a date.
    """

    cause: Cause
    where: str
    text: str
    more: str


def suspicions(total: Tally, judge: Judge) -> Iterator[Suspicion]:
    """All signs in a set of logs."""
    if n := total.conflict_total:
        ids = "a response id occurs" if n == 1 else f"{n:,} response ids occur"
        yield Suspicion(
            "changed response",
            total.conflicts[0].partition(" and ")[0],
            f"{ids} with different contents, so a response was changed after it was logged",
            "; ".join(total.conflicts[:3]),
        )
    if n := total.bad_kinds["duplicate key"]:
        places = [f"{bad.file}:{bad.line}" for bad in total.bad if bad.kind == "duplicate key"][:3]
        lines = "a line says a JSON key twice" if n == 1 else f"{n:,} lines say a JSON key twice"
        yield Suspicion(
            "duplicate key",
            places[0] if places else "",
            f"{lines}, so that two readers can disagree about what was logged",
            ", ".join(places) or "their places were not kept",
        )
    for name, pair in judge.too_early(total):
        birth = judge.aliases.birth(name)
        if birth is not None and pair.since is not None:
            yield Suspicion(
                "before its time",
                pair.since_at,
                f"{shown(name)} is reported for {day(pair.since)}, but that name came into use on "
                f"{day(birth.since)}",
                f"{whose(birth.kind)}: {birth.source}",
            )


def day(seconds: float) -> str:
    """The UTC day of a Unix time."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def whose(kind: str) -> str:
    """Whose word a row of the alias table is."""
    return "the provider's page" if kind == "provider" else "a third party's page"
