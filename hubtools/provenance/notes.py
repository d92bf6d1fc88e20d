"""The sentences under a verdict: what was seen, where, and what it means (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from hubtools.logs.records import BadLine
from hubtools.provenance.counts import Pair, RoleCount, Tally
from hubtools.provenance.judge import Judge
from hubtools.provenance.names import is_path, same, shown, snapshot_of


def notes(total: Tally, judge: Judge) -> list[str]:
    """All notes on a set of logs, the grave ones first; each once."""
    found = [*_grave(total, judge), *_damage(total)]
    for name, role in sorted(total.roles.items()):
        found += _role(name, role, judge)
    found += _hosting(total, judge)
    return list(dict.fromkeys(found))


def _grave(total: Tally, judge: Judge) -> Iterator[str]:
    if total.conflict_total:
        yield (
            f"response ids that occur with different bodies: {total.conflict_total:,}; a response "
            f"was changed after it was logged ({'; '.join(total.conflicts[:3])})"
        )
    if n := total.bad_kinds["duplicate key"]:
        places = _places(bad for bad in total.bad if bad.kind == "duplicate key")
        yield (
            f"lines with a JSON key twice: {n:,}, not counted; two readers can disagree about what "
            f"they say ({places})"
        )
    for name, pair in judge.too_early(total):
        birth = judge.aliases.birth(name)
        if birth is not None and pair.since is not None:
            yield (
                f"{shown(name)} is reported for {_day(pair.since)}, but the name came into use on "
                f"{_day(birth.since)} ({birth.source})"
            )


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
    if role.missing:
        listed = ", ".join(f"{kind} {n:,}" for kind, n in sorted(role.missing.items()))
        yield f"{role_name}: responses that name no model: {role.missing.total():,} ({listed})"
    for name, n in sorted(role.unsupported.items()):
        yield (
            f"{role_name}: responses that say {shown(name)} in a field which the software in "
            f"between fills with the requested name: {n:,}; they are no evidence"
        )
    if role.n and not role.requested and judge.requested:
        yield (
            f"{role_name}: the log holds no requests; that {shown(judge.requested)} was requested "
            "is taken from the configuration"
        )
    for (asked, name), pair in role.pairs.items():
        if not (judge.hosting is not None and is_path(name)):
            yield from _pair(asked or judge.requested, name, pair, judge)


def _pair(asked: str, name: str, pair: Pair, judge: Judge) -> Iterator[str]:
    rows = judge.aliases.within(name, pair.since, pair.until)
    if rows:
        listed = ", ".join(dict.fromkeys(row.target for row in rows))
        other = len(judge.aliases.rows(name)) > len(rows)
        yield (
            f"{name} stood for {listed} when these responses were made"
            + (", for other weights at other times" if other else "")
            + f" ({', '.join(dict.fromkeys(row.source for row in rows))})"
        )
    if not asked or same(asked, name) or snapshot_of(name, asked):
        return
    listed_as = [
        row
        for row in judge.aliases.within(asked, pair.since, pair.until)
        if same(row.target, name) or snapshot_of(row.target, name)
    ]
    answered = f"{shown(asked)} was requested and {shown(name)} answered"
    if listed_as:
        yield f"{asked} was an alias of {name} at the time ({listed_as[0].source})"
    elif pair.fallback:
        yield f"{answered}, which the request allowed as a fallback"
    else:
        yield f"{answered}; the alias table does not relate them"
        yield from _retired(asked, pair, judge)


def _retired(asked: str, pair: Pair, judge: Judge) -> Iterator[str]:
    ends = [row.until for row in judge.aliases.rows(asked)]
    last = max((end for end in ends if end is not None), default=None)
    if last is not None and None not in ends and pair.until is not None and pair.until > last:
        yield f"{asked} was out of use after {_day(last)} by the alias table"


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


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")
