"""The dated alias table: which model an API's name stood for at a given time.

The bundled table is data with sources; a project may put its own rows before it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from hubtools.errors import UsageError
from hubtools.provenance.names import same

Kind = Literal["provider", "third party"]
"""Whose page a source is; a row that does not say counts as a third party's."""


@dataclass(frozen=True, slots=True)
class Alias:
    """`name` stood for `target` in [since, until), Unix seconds; None is an open end."""

    name: str
    target: str
    since: float | None
    until: float | None
    source: str
    kind: Kind
    retrieved: str


@dataclass(frozen=True, slots=True)
class Introduced:
    """No response can carry `name` before `since` (Unix seconds)."""

    name: str
    since: float
    source: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class AliasTable:
    """Rows about names; a name without rows is unknown, which is not wrong."""

    aliases: tuple[Alias, ...] = ()
    introduced: tuple[Introduced, ...] = ()

    def rows(self, name: str) -> tuple[Alias, ...]:
        """All rows about `name`, oldest first."""
        return tuple(row for row in self.aliases if same(row.name, name))

    def within(self, name: str, since: float | None, until: float | None) -> tuple[Alias, ...]:
        """Rows about `name` that touch the window; all of them when there is no window."""
        rows = self.rows(name)
        if since is None or until is None:
            return rows
        return tuple(
            row
            for row in rows
            if (row.since is None or row.since <= until)
            and (row.until is None or since < row.until)
        )

    def birth(self, name: str) -> Introduced | None:
        """When `name` came into use, where the table knows it."""
        return next((row for row in self.introduced if same(row.name, name)), None)


def bundled_text() -> str:
    """The table that ships with this version, as TOML."""
    return files("hubtools.provenance").joinpath("aliases.toml").read_text(encoding="utf-8")


def load_aliases(override: Path | None = None) -> AliasTable:
    """The bundled table; a project's own rows about a name replace all bundled ones about it.

    Raises:
        UsageError: HT205 the file is missing or not an alias table, with its line.
    """
    table = parse_aliases(bundled_text(), "aliases.toml")
    if override is None:
        return table
    try:
        own = parse_aliases(override.read_text(encoding="utf-8"), str(override))
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(f"cannot be read: {error}", str(override)) from error
    return AliasTable(
        own.aliases + tuple(row for row in table.aliases if not own.rows(row.name)),
        own.introduced + tuple(row for row in table.introduced if own.birth(row.name) is None),
    )


def parse_aliases(text: str, where: str) -> AliasTable:
    """Read a table from TOML; `where` names it in errors.

    Raises:
        UsageError: HT205, naming the line or the entry.
    """
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        line = re.search(r"line (\d+)", str(error))
        place = f"{where}:{line[1]}" if line else where
        raise _refused(f"is not TOML: {error}", place) from error
    unknown = set(data) - {"schema", "alias", "introduced"}
    if data.get("schema") != 1 or unknown:
        raise _refused("needs schema = 1 and only [[alias]] and [[introduced]] tables", where)
    return AliasTable(
        tuple(_alias(row, f"{where}, alias {n}") for n, row in _tables(data, "alias", where)),
        tuple(
            _introduced(row, f"{where}, introduced {n}")
            for n, row in _tables(data, "introduced", where)
        ),
    )


def _tables(data: Mapping[str, Any], key: str, where: str) -> list[tuple[int, dict[str, Any]]]:
    rows = data.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise _refused(f"needs [[{key}]] tables", where)
    return list(enumerate(rows, 1))


def _alias(row: Mapping[str, Any], where: str) -> Alias:
    _check_keys(row, {"name", "target", "source", "retrieved"}, {"from", "to", "kind"}, where)
    return Alias(
        str(row["name"]),
        str(row["target"]),
        _time(row.get("from"), where),
        _time(row.get("to"), where),
        str(row["source"]),
        _kind(row, where),
        str(row["retrieved"]),
    )


def _introduced(row: Mapping[str, Any], where: str) -> Introduced:
    _check_keys(row, {"name", "date", "source", "retrieved"}, {"kind"}, where)
    since = _time(row["date"], where) or 0.0
    return Introduced(str(row["name"]), since, str(row["source"]), _kind(row, where))


def _kind(row: Mapping[str, Any], where: str) -> Kind:
    kind: Kind
    for kind in ("provider", "third party"):
        if row.get("kind", "third party") == kind:
            return kind
    raise _refused('needs kind = "provider" or "third party"', where)


def _check_keys(row: Mapping[str, Any], needed: set[str], more: set[str], where: str) -> None:
    if missing := needed - row.keys():
        raise _refused(f"lacks {', '.join(sorted(missing))}", where)
    if unknown := row.keys() - needed - more:
        raise _refused(f"has unknown keys: {', '.join(sorted(unknown))}", where)


def _time(value: Any, where: str) -> float | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise _refused("needs times like 2026-04-24T00:00:00Z", where)
    return value.astimezone(UTC).timestamp()


def _refused(what: str, where: str) -> UsageError:
    return UsageError(
        "HT205",
        f"the alias table {what}; nothing was verified",
        where=where,
        next="correct the table, or leave out --aliases (in a manifest: [provenance] aliases) to "
        "use the bundled one",
    )
