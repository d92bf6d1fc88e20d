"""The teacher section: what the logs, the author, or nobody says about the data. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hubtools.card.model import CardInput
from hubtools.card.rules import in_family
from hubtools.card.tables import Table
from hubtools.card.text import (
    Markdown,
    as_given,
    code,
    escape,
    one_line,
    reported_in,
    sha8,
    values_of,
)
from hubtools.facts import Fact


@dataclass(frozen=True)
class TeacherView:
    """Sentences, then a table per role, or neither when there is nothing to say."""

    sentences: tuple[str, ...]
    table: Table | None


def teacher(card: CardInput) -> TeacherView:
    """What is known about the teacher, by provenance status."""
    if card.provenance.status == "logs" and card.provenance.verdict is not None:
        return _from_logs(card, card.provenance.verdict)
    if card.provenance.status == "reported":
        return _from_report(card)
    reason = card.provenance.reason or "no reason was given"
    said = f"No teacher is named, and no teacher logs were checked: {escape(reason).rstrip('.')}."
    return TeacherView((Markdown(said),), None)


def _from_logs(card: CardInput, verdict: Mapping[str, Any]) -> TeacherView:
    rows = [
        (
            role,
            _names(found.get("requested", {})),
            _names(found.get("reported", {})),
            f"{found.get('k', 0)}/{found.get('n', 0)}",
            str(found.get("verdict", "")),
        )
        for role, found in verdict.get("roles", {}).items()
    ]
    sentences: list[str] = []
    if card.provenance.label:
        sentences.append(Markdown(f"**Teacher:** {escape(card.provenance.label)}."))
    if card.provenance.paragraph:
        sentences.append(Markdown(one_line(card.provenance.paragraph)))
    else:
        sentences += _window(verdict.get("created") or {})
    grade = f", grade {escape(verdict['grade'])}" if verdict.get("grade") else ""
    sentences.append(Markdown(f"Verdict: **{escape(verdict.get('verdict', 'none'))}**{grade}."))
    table = Table(
        columns=("Role", "Requested", "Reported in responses", "k/n", "Verdict"),
        rows=tuple(rows),
        notes=tuple(_log_notes(verdict)),
    )
    return TeacherView(tuple(sentences), table if rows else None)


def _names(counts: Mapping[str, int]) -> str:
    """Model names with their counts; the count is left out when there is one name."""
    if not counts:
        return "not recorded"
    if len(counts) == 1:
        return code(next(iter(counts)))
    return Markdown(", ".join(f"{code(name)} × {count}" for name, count in counts.items()))


def _window(created: Mapping[str, Any]) -> list[str]:
    first, last = _day(created.get("from")), _day(created.get("to"))
    if not first or not last:
        return []
    when = f"on {first}" if first == last else f"from {first} to {last}"
    return [f"The responses say they were created {when}."]


def _day(moment: Any) -> str:
    """A UTC day from epoch seconds or from an ISO text; empty when there is none."""
    if isinstance(moment, int | float) and not isinstance(moment, bool):
        return datetime.fromtimestamp(moment, UTC).date().isoformat()
    return str(moment)[:10] if moment else ""


def _log_notes(verdict: Mapping[str, Any]) -> list[str]:
    files = verdict.get("files", [])
    notes: list[str] = []
    if files:
        named = ", ".join(
            f"{code(f['path'])} (sha256 {code(sha8(f['sha256']))})" for f in files[:5]
        )
        more = f" and {len(files) - 5} more" if len(files) > 5 else ""
        notes.append(Markdown(f"Source: {named}{more}."))
    bad = verdict.get("bad_total", len(verdict.get("bad_lines", [])))
    if bad:
        notes.append(f"{bad} lines could not be read as responses; they are not counted.")
    return [*notes, *(_sentence(str(note)) for note in verdict.get("notes", []))]


def _sentence(text: str) -> str:
    """A note as a sentence; one that starts with a file's or a model's name keeps it."""
    start = text[:1].upper() if re.match(r"[a-z]+ ", text) else text[:1]
    return f"{start}{text[1:].rstrip('.')}."


def _from_report(card: CardInput) -> TeacherView:
    facts = [f for f in card.facts.with_prefix("teacher") if in_family(card, f)]
    reason = escape(card.provenance.reason).rstrip(".")
    known = f": {reason}." if reason else "; the raw logs were not available."
    sentences = (Markdown(f"This is the author's statement; it was not verified here{known}"),)
    roles: dict[str, dict[str, Any]] = {}
    for fact in facts:
        parts = fact.id.split(".")
        if len(parts) == 3:
            roles.setdefault(parts[1], {})[parts[2]] = fact
    rows = []
    for role, found in roles.items():
        requested, reported = found.get("requested"), found.get("reported")
        count = (
            f"{reported.k}/{reported.n}" if reported and reported.k is not None else "not stated"
        )
        rows.append(
            (
                role.replace("_", " "),
                code(requested.value) if requested else "not stated",
                code(reported.value) if reported else "not stated",
                count,
            )
        )
    table = Table(
        columns=("Role", "Requested", "Reported in responses", "k/n"),
        rows=tuple(rows),
        notes=tuple(reported_in(f.source.quote for f in facts)),
    )
    return TeacherView(sentences, table if rows else None)


def fact_value(fact: Fact) -> str:
    """A training or data fact as a cell: the author's own digits, or six of what we read."""
    said = [
        f"{value:.6g}" if fact.status == "measured" and isinstance(value, float) else value
        for value in values_of(fact)
    ]
    shown = ", ".join(as_given(fact, value) for value in said)
    named = fact.unit in ("", "proportion") or fact.id.endswith(f"_{fact.unit}")
    return shown if named else f"{shown} {fact.unit}"
