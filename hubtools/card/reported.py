"""`reported.toml`: figures that somebody published and nobody here measured, as facts.

Each entry carries the words that report it; a number that does not stand in those words is refused,
so a slip of the pen here cannot become a claim of theirs.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubtools.card.model import FAMILY_MEMBER
from hubtools.card.text import number, numbers_in
from hubtools.digests import sha256_bytes, sha256_json
from hubtools.errors import UsageError
from hubtools.facts import Fact, FactSet, Source, Subject

_TOP = {"schema", "source", "date", "protocols", "fact"}
_ENTRY = {
    "id", "member", "value", "unit", "n", "k", "repeats", "protocol", "date", "quote", "source",
    "status",
}  # fmt: skip
_HEAD = re.compile(r"^[ \t]*\[\[[ \t]*fact[ \t]*\]\]", re.MULTILINE)


def read_reported(path: Path) -> FactSet:
    """Read the figures an author reports.

    The file holds `source` (the name of the published text) and `date` as defaults, a table
    `[protocols.<name>]` with a `title`, a `quote` and one key per field that makes two runs
    comparable, and `[[fact]]` entries: id, value, quote; optional member (default: the family),
    unit, n, k, repeats, protocol (a name from above), date, source, status (`reported`,
    `external` or `unverified`).

    Returns:
        Facts whose source is this file and whose protocol is the digest of the protocol's fields.
        Protocols come along as facts `protocol.<name>.<field>` and `protocol_title`.

    Raises:
        UsageError: HT085, with the line, for anything unreadable, unknown, or not in its quote.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8")
        data = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise _error(path, 0, f"cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        found = re.search(r"line (\d+)", str(error))
        raise _error(path, int(found[1]) if found else 0, f"not TOML: {error}") from error
    reader = _Reader(path, text, sha256_bytes(raw), data)
    return reader.facts()


class _Reader:
    def __init__(self, path: Path, text: str, sha256: str, data: Mapping[str, Any]) -> None:
        self.path = path
        self.text = text
        self.sha256 = sha256
        self.data = data
        self.heads = [text.count("\n", 0, m.start()) + 1 for m in _HEAD.finditer(text)]

    def facts(self) -> FactSet:
        unknown = sorted(set(self.data) - _TOP)
        if unknown:
            raise self.error(self.line_of(unknown[0]), f"unknown key {unknown[0]!r}")
        if self.data.get("schema") != 1:
            raise self.error(self.line_of("schema"), "schema must be 1")
        entries, protocols = self.data.get("fact", []), self.data.get("protocols", {})
        if not isinstance(entries, list) or not isinstance(protocols, dict):
            raise self.error(1, "[[fact]] must be a list of tables, [protocols] a table")
        ids: dict[str, str] = {}
        described: list[Fact] = []
        for name, table in protocols.items():
            ids[name], facts = self.protocol(name, table)
            described += facts
        facts = [self.fact(place, entry, ids) for place, entry in enumerate(entries)]
        try:
            return FactSet((*facts, *described))
        except ValueError as error:
            raise self.error(0, str(error)) from error

    def protocol(self, name: str, table: Any) -> tuple[str, list[Fact]]:
        line = self.line_of(f"[protocols.{name}]")
        if not isinstance(table, dict) or not all(isinstance(v, str) for v in table.values()):
            raise self.error(line, f"protocol {name!r} must hold text only")
        fields = {k: v for k, v in table.items() if k not in ("title", "quote")}
        if not fields or not table.get("quote"):
            raise self.error(line, f"protocol {name!r} needs a quote and at least one field")
        id = sha256_json(fields)
        words = self.quoted(table["quote"], None)
        shown = {f"protocol.{name}.{key}": value for key, value in fields.items()}
        if "title" in table:
            shown["protocol_title"] = table["title"]
        facts = [
            Fact(
                id=key,
                value=value,
                status="reported",
                source=Source(self.path.name, self.sha256, f"/protocols/{name}", words),
                subject=Subject(FAMILY_MEMBER),
                protocol=id,
                date=str(self.data.get("date", "")),
            )
            for key, value in shown.items()
        ]
        return id, facts

    def fact(self, place: int, entry: Any, protocols: Mapping[str, str]) -> Fact:
        line = self.heads[place] if place < len(self.heads) else 0
        self.check(entry, line, protocols)
        try:
            return Fact(
                id=entry["id"],
                value=entry["value"],
                status=entry.get("status", "reported"),
                source=Source(
                    self.path.name,
                    self.sha256,
                    f"/fact/{place}",
                    self.quoted(entry["quote"], entry.get("source")),
                ),
                subject=Subject(entry.get("member", FAMILY_MEMBER)),
                unit=entry.get("unit", ""),
                n=entry.get("n"),
                k=entry.get("k"),
                repeats=entry.get("repeats"),
                protocol=protocols[entry["protocol"]] if "protocol" in entry else "",
                date=str(entry.get("date", self.data.get("date", ""))),
            )
        except (ValueError, TypeError) as error:
            raise self.error(line, str(error)) from error

    def check(self, entry: Any, line: int, protocols: Mapping[str, str]) -> None:
        """Everything a fact's own constructor does not look at."""
        if not isinstance(entry, dict):
            raise self.error(line, "an entry must be a table")
        for key in sorted(set(entry) - _ENTRY):
            raise self.error(line, f"unknown key {key!r}; known: {', '.join(sorted(_ENTRY))}")
        for key in ("id", "value", "quote"):
            if key not in entry or entry[key] == "":
                raise self.error(line, f"the entry needs {key}")
        for key in ("id", "member", "unit", "protocol", "quote", "source", "status"):
            if not isinstance(entry.get(key, ""), str):
                raise self.error(line, f"{key} must be text")
        for key in ("n", "k", "repeats"):
            count = entry.get(key, 1)
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise self.error(line, f"{key} must be a whole number")
        if entry.get("k", 0) > entry.get("n", entry.get("k", 0)):
            raise self.error(line, "k is larger than n")
        if entry.get("status") == "measured":
            raise self.error(line, "a reported figure cannot be measured; evaluate the weights")
        if entry.get("protocol", "") not in (*protocols, ""):
            raise self.error(line, f"no [protocols.{entry['protocol']}]")
        if not entry.get("source", self.data.get("source")):
            raise self.error(line, "say in source which published text this is from")
        self.check_quote(entry, line)

    def check_quote(self, entry: Mapping[str, Any], line: int) -> None:
        said = {number(token) for token in numbers_in(entry["quote"])}
        value = entry["value"]
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(item, str | int | float | bool) for item in values):
            raise self.error(line, "value must be text, a number, or a list of them")
        for item in values:
            if isinstance(item, int | float) and not isinstance(item, bool) and item not in said:
                raise self.error(line, f"{item} does not stand in its quote: {entry['quote']!r}")

    def quoted(self, quote: str, source: str | None) -> str:
        return f"{source or self.data.get('source', 'the published card')}: “{quote}”"

    def line_of(self, text: str) -> int:
        place = self.text.find(text)
        return self.text.count("\n", 0, place) + 1 if place >= 0 else 1

    def error(self, line: int, problem: str) -> UsageError:
        return _error(self.path, line, problem)


def _error(path: Path, line: int, problem: str) -> UsageError:
    place = f"{path}:{line}" if line else str(path)
    return UsageError(
        "HT085",
        f"reported figures: {problem}",
        where=place,
        detail=("No card was written.",),
        next=f"correct {place}, then run the same command again",
    )
