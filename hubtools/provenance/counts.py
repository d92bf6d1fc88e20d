"""Counting what logs say: per role, which name was asked for and which one answered (pure).

Copies of a response are counted once, pieces of a stream are one response, errors and what a
harness wrote itself are not responses, and nothing is decided here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from hubtools.logs.records import BadLine, Grade, Record

SHOWN = 20
"""How many bad lines, conflicts and responses are kept with their place; all are counted."""

EVIDENCE = ("A", "B", "C")
"""Grades at which a reported name counts as reported by the API."""

# OpenRouter's ids begin with the time they were made.
_DATED_ID = re.compile(r"gen-(\d{10})-")


@dataclass(slots=True)
class Pair:
    """Responses that were asked for by one name and report another (or the same).

    Args:
        order: rank of its first response among all records.
        since, until: first and last `created`, Unix seconds.
        since_at: `file:line` of the response created first.
        fallback: the request itself offered the reported name as a fallback.
        places: `file:line` of the responses that were counted first, at most `SHOWN`.
    """

    file: str
    line: int
    order: int
    n: int = 0
    since: float | None = None
    until: float | None = None
    since_at: str = ""
    fallback: bool = False
    places: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RoleCount:
    """One role's responses: `n` in all, of which `pairs` report a name at an evidence grade."""

    n: int = 0
    pairs: dict[tuple[str, str], Pair] = field(default_factory=dict)
    requested: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    unsupported: Counter[str] = field(default_factory=Counter)
    grades: set[Grade] = field(default_factory=set)
    errors: int = 0
    harness: int = 0

    def reported(self) -> Counter[str]:
        """Reported name → responses, evidence grades only."""
        names: Counter[str] = Counter()
        for (_, name), pair in self.pairs.items():
            names[name] += pair.n
        return names


@dataclass(slots=True)
class FileCount:
    """Lines seen (the last line number) and responses counted in one file."""

    lines: int = 0
    records: int = 0


@dataclass(slots=True)
class Tally:
    """Everything counted in a set of logs."""

    roles: dict[str, RoleCount] = field(default_factory=dict)
    files: dict[str, FileCount] = field(default_factory=dict)
    bad: list[BadLine] = field(default_factory=list)
    bad_kinds: Counter[str] = field(default_factory=Counter)
    conflicts: list[str] = field(default_factory=list)
    conflict_total: int = 0
    copies: int = 0
    without_id: int = 0
    odd_times: int = 0
    odd_ids: int = 0
    since: float | None = None
    until: float | None = None


def tally(records: Iterable[Record | BadLine]) -> Tally:
    """Count records in one pass; memory grows with the number of distinct response ids."""
    total = Tally()
    bodies: dict[str, tuple[str, str]] = {}
    streams: dict[str, dict[str, tuple[int, Record]]] = {}
    for order, item in enumerate(records):
        place = total.files.setdefault(item.file, FileCount())
        place.lines = max(place.lines, item.line)
        if isinstance(item, BadLine):
            total.bad_kinds[item.kind] += 1
            if len(total.bad) < SHOWN:
                total.bad.append(item)
        elif item.harness:
            total.roles.setdefault(item.role, RoleCount()).harness += 1
        elif item.error:
            total.roles.setdefault(item.role, RoleCount()).errors += 1
        elif item.id and item.piece:
            streams.setdefault(item.id, {}).setdefault(item.reported, (order, item))
        elif not item.id:
            total.without_id += 1
            _count(total, item, order)
        elif (known := bodies.get(item.id)) is None:
            bodies[item.id] = (item.body, f"{item.file}:{item.line}")
            _count(total, item, order)
        elif known[0] == item.body:
            total.copies += 1
        else:
            total.conflict_total += 1
            if len(total.conflicts) < SHOWN:
                total.conflicts.append(f"{known[1]} and {item.file}:{item.line}")
    for names in streams.values():
        if len(names) > 1:
            names.pop("", None)  # the first piece may leave the name empty
        for order, item in names.values():  # a second name in one stream is a second answer
            _count(total, item, order)
    return total


def _count(total: Tally, item: Record, order: int) -> None:
    role = total.roles.setdefault(item.role, RoleCount())
    role.n += 1
    total.files[item.file].records += 1
    if item.requested:
        role.requested[item.requested] += 1
    when = _when(total, item)
    if not item.reported:
        role.missing[item.missing or "absent"] += 1
        return
    if item.grade not in EVIDENCE:
        role.unsupported[item.reported] += 1
        return
    role.grades.add(item.grade)
    key = (item.requested, item.reported)
    pair = role.pairs.setdefault(key, Pair(item.file, item.line, order))
    if order < pair.order:
        pair.file, pair.line, pair.order = item.file, item.line, order
    pair.n += 1
    if len(pair.places) < SHOWN:
        pair.places.append(f"{item.file}:{item.line}")
    if when is not None and (pair.since is None or when < pair.since):
        pair.since_at = f"{item.file}:{item.line}"
    pair.since, pair.until = _widened(pair.since, pair.until, when)
    pair.fallback = pair.fallback or item.reported in item.offered


def _when(total: Tally, item: Record) -> float | None:
    """The record's time, unless it is no plausible time in seconds (0, milliseconds)."""
    if item.created is None:
        return None
    if not 1e9 <= item.created < 1e10:
        total.odd_times += 1
        return None
    dated = _DATED_ID.match(item.id)
    total.odd_ids += dated is not None and abs(int(dated[1]) - item.created) > 300
    total.since, total.until = _widened(total.since, total.until, item.created)
    return item.created


def _widened(
    since: float | None, until: float | None, when: float | None
) -> tuple[float | None, float | None]:
    if when is None:
        return since, until
    return (
        when if since is None else min(since, when),
        when if until is None else max(until, when),
    )
