"""From counts to a verdict (pure): what the logs support, and no more than that.

A verdict says what an API reported. It never says which weights ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from hubtools.logs.records import BadLine, Record
from hubtools.provenance.aliases import AliasTable
from hubtools.provenance.counts import RoleCount, tally
from hubtools.provenance.judge import SEVERITY, Hosting, Judge
from hubtools.provenance.names import shown
from hubtools.provenance.notes import notes
from hubtools.provenance.suspicion import Suspicion, suspicions

RULES_VERSION = 2
"""Part of a verify stage's key: raised when the same logs may get another verdict."""

STOPPING = frozenset({"MIXED", "CONTRADICTS-CLAIM", "SUSPECT", "UNREADABLE"})
"""Verdicts with which nothing is released."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the logs support.

    Args:
        verdict, grade: the worst of the roles; grade E when no response reports a name.
        roles: role → counts and verdict, as in `to_json`.
        created: first and last response time, ISO 8601 UTC, None when no response has one.
        first_mismatch: first response whose name does not fit.
        suspicions: why the logs are suspect, the gravest first.
        files: `{path, sha256, lines, records}` each; digests are added by the caller that reads.
    """

    verdict: str
    grade: str
    created: Mapping[str, str | None]
    roles: Mapping[str, Mapping[str, Any]]
    claim: str
    requested: str
    files: Sequence[Mapping[str, Any]]
    bad_lines: Sequence[Mapping[str, Any]]
    bad_total: int
    first_mismatch: Mapping[str, Any] | None
    notes: Sequence[str]
    hosting: Hosting | None = None
    rules: int = RULES_VERSION
    copies: int = 0
    suspicions: Sequence[Suspicion] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON object for `--json`, facts and the release record."""
        hosting = self.hosting and {
            "kind": "self",
            "served": [shown(name) for name in self.hosting.served],
            "served_sha256": self.hosting.served_sha256,
            "weights": self.hosting.weights,
        }
        return {
            "verdict": self.verdict,
            "grade": self.grade,
            "claim": self.claim,
            "requested": shown(self.requested),
            "created": dict(self.created),
            "roles": {name: dict(role) for name, role in self.roles.items()},
            "first_mismatch": None if self.first_mismatch is None else dict(self.first_mismatch),
            "suspicions": [asdict(sign) for sign in self.suspicions],
            "hosting": hosting or {"kind": "api"},
            "copies": self.copies,
            "files": [dict(file) for file in self.files],
            "bad_lines": [dict(line) for line in self.bad_lines],
            "bad_total": self.bad_total,
            "notes": list(self.notes),
            "rules": self.rules,
        }


def verify(
    records: Iterable[Record | BadLine],
    *,
    claim: str,
    requested: str = "",
    aliases: AliasTable | None = None,
    hosting: Hosting | None = None,
    rules_version: int = RULES_VERSION,
) -> Verdict:
    """Judge raw-log records against a claim.

    Args:
        records: what the log readers yield, any number of files.
        claim: the teacher a card would name; empty to ask only what the logs report.
        requested: the name the collecting script asked for, used where a log has no request.
        aliases: dated alias table.
        hosting: given when the publisher ran the server.
        rules_version: recorded; only the current rules are implemented.

    Raises:
        ValueError: other rules.
    """
    if rules_version != RULES_VERSION:
        raise ValueError(f"rules {rules_version} are not implemented, {RULES_VERSION} are")
    total = tally(records)
    judge = Judge(claim, requested, aliases or AliasTable(), hosting)
    words = {name: judge.role(role) for name, role in sorted(total.roles.items())}
    counted = [word for name, word in words.items() if total.roles[name].n]
    worst = [*counted, *judge.overall(total)]
    grades = sorted({grade for role in total.roles.values() for grade in role.grades})
    return Verdict(
        verdict=max(worst, key=SEVERITY.index),
        grade=grades[-1] if grades else "E",
        created={"from": _iso(total.since), "to": _iso(total.until)},
        roles={name: _role(total.roles[name], word, requested) for name, word in words.items()},
        claim=claim,
        requested=requested,
        files=[
            {"path": path, "lines": count.lines, "records": count.records}
            for path, count in total.files.items()
        ],
        bad_lines=[
            {"file": bad.file, "line": bad.line, "kind": bad.kind, "detail": bad.detail}
            for bad in total.bad
        ],
        bad_total=total.bad_kinds.total(),
        first_mismatch=judge.first_mismatch(total),
        notes=notes(total, judge),
        hosting=hosting,
        copies=total.copies,
        suspicions=tuple(suspicions(total, judge)),
    )


def _role(role: RoleCount, word: str, requested: str) -> dict[str, Any]:
    reported = role.reported()
    asked = dict(role.requested)
    if requested and (rest := role.n - role.requested.total()) > 0 and not asked:
        asked = {requested: rest}
    return {
        "n": role.n,
        "k": max(reported.values(), default=0),
        "requested": _by_name(asked),
        "requested_from": "log" if role.requested else "configuration" if requested else "nowhere",
        "reported": _by_name(reported),
        "verdict": word,
        "missing": dict(sorted(role.missing.items())),
        "unsupported": _by_name(role.unsupported),
        "errors": role.errors,
        "harness": role.harness,
    }


def _by_name(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts as they may be published, largest first; paths that look alike are added up."""
    found: dict[str, int] = {}
    for name, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        found[shown(name)] = found.get(shown(name), 0) + n
    return found


def _iso(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
