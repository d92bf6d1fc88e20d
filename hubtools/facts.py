"""Facts: a value plus where it came from. Cards, tables and metadata are views of facts.

Pure: no I/O, no clock, no environment. Field names of evaluation facts follow the Every Eval Ever
schema where it has one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

Status = Literal["measured", "reported", "external", "unverified"]
SpreadKind = Literal["sd", "sem", "ci", "minmax"]

FACTS_SCHEMA = "hubtools.facts/1"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value was read.

    Args:
        path: file relative to the manifest, or `hub:owner/name@rev/path`.
        sha256: digest of that file; empty where words, not a file, are the source.
        pointer: JSON pointer (`/results/em`) or line (`L12`) inside it.
        quote: for a value nobody here measured, the words that report it.
    """

    path: str
    sha256: str = ""
    pointer: str = ""
    quote: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a value is about: a member; when measured, its weights, dataset or log set."""

    member: str
    weights: str = ""
    dataset: str = ""
    logs: str = ""


@dataclass(frozen=True, slots=True)
class Spread:
    """How far a value may be off, and what kind of statement that is.

    Args:
        kind: sd of repeats, standard error, interval, or smallest and largest of k values.
        low, high: ends of a `ci` or `minmax`; for `sd` and `sem`, value minus and plus one of them.
        method: for example `wilson` or `paired bootstrap`.
        k: how many values (repeats, samples or tasks) it was computed from.
        level: of a `ci`, for example 0.95.
    """

    kind: SpreadKind
    low: float
    high: float
    method: str
    k: int
    level: float | None = None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError("a spread needs the number of values it was computed from")
        if self.kind == "ci" and self.level is None:
            raise ValueError("an interval needs its level")


@dataclass(frozen=True, slots=True)
class Fact:
    """One value with its evidence.

    Args:
        id: dotted name, for example `eval.short_qa.em`, `train.learning_rate`.
        value: JSON scalar (or a short list of them).
        unit: for example `proportion`, `steps`, `bytes`; empty for plain text.
        n, k: size of the sample; successes in it where the value is a proportion.
        repeats: how often the whole measurement was made.
        protocol: protocol id (sha256); two facts are comparable only when it is equal.
        date: ISO date of the measurement, or of the report.

    Raises:
        ValueError: measured without a digest, reported without a quote, not a finite number.
    """

    id: str
    value: Any
    status: Status
    source: Source
    subject: Subject
    unit: str = ""
    n: int | None = None
    k: int | None = None
    repeats: int | None = None
    spread: Spread | None = None
    protocol: str = ""
    date: str = ""

    def __post_init__(self) -> None:
        if self.status not in get_args(Status):
            raise ValueError(f"fact {self.id}: unknown status {self.status!r}")
        if self.status == "measured" and not self.source.sha256:
            raise ValueError(f"fact {self.id}: measured, but its source has no digest")
        if self.status != "measured" and not self.source.quote:
            raise ValueError(f"fact {self.id}: {self.status}, but no words that report it")
        if isinstance(self.value, float) and not math.isfinite(self.value):
            raise ValueError(f"fact {self.id}: {self.value} is not a number to publish")

    def to_json(self) -> dict[str, Any]:
        """JSON object with the empty fields left out."""
        pruned: dict[str, Any] = _pruned(asdict(self))
        return pruned


def fact_from_json(data: Mapping[str, Any]) -> Fact:
    """Inverse of `Fact.to_json`.

    Raises:
        ValueError, TypeError, KeyError: fields missing, unknown, or against the rules above.
    """
    fields = dict(data)
    fields["source"] = Source(**fields["source"])
    fields["subject"] = Subject(**fields["subject"])
    if fields.get("spread") is not None:
        fields["spread"] = Spread(**fields["spread"])
    return Fact(**fields)


@dataclass(frozen=True, slots=True)
class FactSet:
    """An ordered set of facts; one (id, member, protocol) at most once."""

    facts: tuple[Fact, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        seen: set[tuple[str, str, str]] = set()
        for fact in self.facts:
            name = (fact.id, fact.subject.member, fact.protocol)
            if name in seen:
                raise ValueError(f"fact {fact.id} of {fact.subject.member} is there twice")
            seen.add(name)

    def __iter__(self) -> Iterator[Fact]:
        return iter(self.facts)

    def __len__(self) -> int:
        return len(self.facts)

    def get(self, id: str, member: str | None = None) -> Fact | None:
        """The first fact with this id (of this member, when given)."""
        for fact in self.facts:
            if fact.id == id and (member is None or fact.subject.member == member):
                return fact
        return None

    def of(self, member: str) -> FactSet:
        """Only the facts about one member."""
        return FactSet(tuple(fact for fact in self.facts if fact.subject.member == member))

    def with_prefix(self, prefix: str) -> tuple[Fact, ...]:
        """Facts whose id is `prefix` or starts with `prefix.`."""
        return tuple(f for f in self.facts if f.id == prefix or f.id.startswith(prefix + "."))

    def plus(self, more: Iterable[Fact]) -> FactSet:
        """This set and `more`, in that order."""
        return FactSet((*self.facts, *more))

    def to_json(self) -> dict[str, Any]:
        """`{"schema": "hubtools.facts/1", "facts": [...]}`."""
        return {"schema": FACTS_SCHEMA, "facts": [fact.to_json() for fact in self.facts]}


def facts_from_json(data: Mapping[str, Any]) -> FactSet:
    """Inverse of `FactSet.to_json`.

    Raises:
        ValueError: another schema.
    """
    if data.get("schema") != FACTS_SCHEMA:
        raise ValueError(f"not {FACTS_SCHEMA}: {data.get('schema')!r}")
    return FactSet(tuple(fact_from_json(item) for item in data["facts"]))


def _pruned(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _pruned(v) for k, v in value.items() if v is not None and v != ""}
    return list(value) if isinstance(value, tuple) else value
