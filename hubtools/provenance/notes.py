"""The sentences under a verdict: what was seen, where, and what it means (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hubtools.logs.records import BadLine
from hubtools.provenance.aliases import Alias
from hubtools.provenance.counts import SHOWN, Pair, RoleCount, Tally
from hubtools.provenance.judge import Judge
from hubtools.provenance.names import is_path, same, shown, snapshot_of
from hubtools.provenance.suspicion import day, suspicions, whose

_CLAIM = {
    "alias": "is an alias, not a model's own name; the card names what the responses report: {}",
    "snapshot": "names no version; the card names the one that the responses report: {}",
    "vaguer": "says more than the responses, which report {}; the card names no more",
    "repeated": "is an alias, which the responses repeat; the card does not call it the teacher",
    "moving": "is an alias, which the responses report; the card gives a name, not weights",
}


def notes(total: Tally, judge: Judge) -> list[str]:
    """All notes on a set of logs, the grave ones first; each once."""
    signs = [f"{sign.text} ({sign.more})" for sign in suspicions(total, judge)]
    found = [*signs, *_claim(total, judge), *_damage(total)]
    for name, role in sorted(total.roles.items()):
        found += _role(name, role, judge)
    found += _hosting(total, judge)
    return list(dict.fromkeys(found))


def _claim(total: Tally, judge: Judge) -> Iterator[str]:
    """A claim that is another name than the reported one: a card prints only the latter."""
    if judge.hosting is not None or not judge.claim:
        return
    found: dict[str, set[str]] = {}
    for role in total.roles.values():
        for (asked, name), pair in role.pairs.items():
            key = judge.fits(name, pair)
            if key == "same" and judge.aliased(name, pair):
                key = "repeated" if judge.pair(asked, name, pair) == "ECHO" else "moving"
            found.setdefault(key, set()).add(shown(name))
    for how, said in _CLAIM.items():
        if names := found.get(how):
            yield f"the claim {judge.claim} {said.format(' and '.join(sorted(names)))}"


def _damage(total: Tally) -> Iterator[str]:
    kinds = {kind: n for kind, n in sorted(total.bad_kinds.items()) if kind != "duplicate key"}
    if kinds:
        listed = ", ".join(f"{kind} {n:,}" for kind, n in kinds.items())
        places = _places(bad for bad in total.bad if bad.kind != "duplicate key")
        yield f"lines that could not be counted: {listed} ({places})"
    if total.copies:
        yield f"copies of responses already counted, left out: {total.copies:,}"
    if total.without_id:
        yield f"responses without a usable id: {total.without_id:,}; copies of them would not show"
    if total.odd_ids:
        yield f"response ids that carry another time than the response: {total.odd_ids:,}"
    if total.odd_times:
        yield f"creation times that are not in seconds, not used: {total.odd_times:,}"


def _places(lines: Iterable[BadLine]) -> str:
    return ", ".join(f"{bad.file}:{bad.line}" for bad in list(lines)[:3])


def _role(role_name: str, role: RoleCount, judge: Judge) -> Iterator[str]:
    if role.errors:
        yield f"{role_name}: error answers, which are not responses and not in n: {role.errors:,}"
    if role.harness:
        yield f"{role_name}: turns that the harness wrote itself, not in n: {role.harness:,}"
    if role.missing:
        listed = ", ".join(f"{kind} {n:,}" for kind, n in sorted(role.missing.items()))
        yield f"{role_name}: responses that name no model: {role.missing.total():,} ({listed})"
    for name, n in sorted(role.unsupported.items()):
        yield (
            f"{role_name}: responses that say {shown(name)} in a field which the software in "
            f"between writes, often with the requested name: {n:,}; they are no evidence"
        )
    if role.n and not role.requested and judge.requested:
        yield (
            f"{role_name}: the log holds no requests; that {shown(judge.requested)} was requested "
            "is taken from the configuration"
        )
    yield from _others(role_name, role)
    for (asked, name), pair in role.pairs.items():
        if not (judge.hosting is not None and is_path(name)):
            yield from _pair(asked or judge.requested, name, pair, judge)


def _others(role_name: str, role: RoleCount) -> Iterator[str]:
    """Where each name but the usual one is reported."""
    for usual, (name, n) in enumerate(role.reported().most_common()):
        if usual:
            places = [
                p for (_, said), pair in role.pairs.items() if said == name for p in pair.places
            ]
            more = f" and {n - SHOWN:,} more" if n > SHOWN else ""
            yield f"{role_name}: {shown(name)} is reported at {', '.join(places[:SHOWN])}{more}"


def _pair(asked: str, name: str, pair: Pair, judge: Judge) -> Iterator[str]:
    rows = judge.aliases.within(name, pair.since, pair.until)
    moved = len(judge.aliases.rows(name)) > 1
    if rows and (moved or judge.aliased(name, pair)):
        yield _meaning(name, rows, pair, moved=moved)
    if not asked or same(asked, name) or snapshot_of(name, asked):
        return
    listed_as = [
        row
        for row in judge.aliases.within(asked, pair.since, pair.until)
        if same(row.target, name) or snapshot_of(row.target, name)
    ]
    answered = f"{shown(asked)} was requested and {shown(name)} answered"
    if listed_as:
        row = listed_as[0]
        yield f"{asked} was an alias of {name} at the time, by {whose(row.kind)} ({row.source})"
    elif pair.fallback:
        yield f"{answered}, which the request allowed as a fallback"
    else:
        yield f"{answered}; the alias table does not relate them"
        yield from _retired(asked, pair, judge)


def _meaning(name: str, rows: Sequence[Alias], pair: Pair, *, moved: bool) -> str:
    """What a reported name stood for at the stated time of the responses, and who says so."""
    if pair.since is None or pair.until is None:
        when = "at times that the responses do not state,"
    elif day(pair.since) == day(pair.until):
        when = f"on {day(pair.since)}"
    else:
        when = f"from {day(pair.since)} to {day(pair.until)}"
    told = []
    for kind in dict.fromkeys(row.kind for row in rows):
        own = [row for row in rows if row.kind == kind]
        targets = ", then ".join(f"{row.target}{_period(row)}" for row in own)
        sources = ", ".join(dict.fromkeys(row.source for row in own))
        told.append(f"{targets}, by {whose(kind)}: {sources}")
    what = "has stood for different weights" if moved else "is an alias"
    return f"the name {name} {what}; {when} it meant {'; and '.join(told)}"


def _period(row: Alias) -> str:
    if row.since is None and row.until is None:
        return ""
    if row.until is None:
        return f" (since {day(row.since or 0)})"
    return f" ({day(row.since)} to {day(row.until)})" if row.since else f" (until {day(row.until)})"


def _retired(asked: str, pair: Pair, judge: Judge) -> Iterator[str]:
    ends = [row.until for row in judge.aliases.rows(asked)]
    last = max((end for end in ends if end is not None), default=None)
    if last is not None and None not in ends and pair.until is not None and pair.until > last:
        yield f"{asked} was out of use after {day(last)} by the alias table"


def _hosting(total: Tally, judge: Judge) -> Iterator[str]:
    if judge.hosting is None:
        return
    yield (
        "the publisher ran the server, so the reported name is whatever its operator configured; "
        + (
            "the digest of the weights is the operator's statement"
            if judge.hosting.weights
            else "no digest of the weights was given"
        )
    )
    names = {name for role in total.roles.values() for _, name in role.pairs}
    if judge.hosting.served and names:
        unlisted = sorted(n for n in names if not any(same(n, s) for s in judge.hosting.served))
        if unlisted:
            yield (
                "the saved model list does not hold the reported "
                + ", ".join(shown(name) for name in unlisted)
            )
        else:
            yield "the reported name is in the saved model list of the server"
