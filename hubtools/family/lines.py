"""Which line of a TOML file a key stands on: error messages name it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_TABLE = re.compile(r"^\s*\[\[?\s*(?P<name>[^\]]+?)\s*\]\]?")
_KEY = re.compile(
    r"^\s*(?P<name>(?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*[\w\"'-]+)*)\s*=(?P<rest>.*)"
)


def line_of(text: str, key: Sequence[str]) -> int:
    """The 1-based line of `key`, or of the nearest enclosing key or table that has one.

    Keys inside an inline table are reported at the line of that table's key. Returns 1 when
    nothing matches.
    """
    places = dict(_places(text))
    for length in range(len(key), 0, -1):
        place = places.get(tuple(key[:length]))
        if place is not None:
            return place
    return 1


def _places(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    table: tuple[str, ...] = ()
    inside = ""  # the triple quote that is still open
    for number, line in enumerate(text.splitlines(), 1):
        if inside:
            if inside in line:
                inside = ""
            continue
        if found := _TABLE.match(line):
            table = _parts(found["name"])
            yield table, number
        elif found := _KEY.match(line):
            yield (*table, *_parts(found["name"])), number
            for quote in ('"""', "'''"):
                if found["rest"].count(quote) % 2:
                    inside = quote


def _parts(dotted: str) -> tuple[str, ...]:
    parts = re.findall(r"\"[^\"]*\"|'[^']*'|[^.\s]+", dotted)
    return tuple(part.strip("\"'") for part in parts)
