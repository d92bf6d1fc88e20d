"""One line of JSON, read so that no two readers can disagree about it.

Parsers differ on duplicate keys (first wins, last wins), on NaN and on bad bytes; a line that
depends on such a choice is refused, by kind, and never quoted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

from hubtools.logs.containers import MAX_LINE
from hubtools.logs.records import BadKind

_BOM = b"\xef\xbb\xbf"


class BadJsonError(Exception):
    """Why a line was refused.

    Args:
        kind: what sort of damage it is.
        detail: more about it, without the line's content (a duplicate key is named).
    """

    def __init__(self, kind: BadKind, detail: str = "") -> None:
        super().__init__(kind)
        self.kind: BadKind = kind
        self.detail = detail


def parse_line(line: bytes) -> dict[str, Any]:
    """The JSON object on `line`.

    Raises:
        BadJsonError: not one strict JSON object.
    """
    if len(line) > MAX_LINE:
        raise BadJsonError("too long", f"more than {MAX_LINE >> 20} MiB")
    try:
        text = line.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadJsonError("not UTF-8", f"byte {error.start + 1}") from error
    try:
        value = parse_value(text)
    except BadJsonError as bad:
        if bad.kind == "not JSON" and not line.endswith(b"\n"):
            raise BadJsonError("cut off", "the file ends in the middle of this line") from bad
        raise
    if not isinstance(value, dict):
        raise BadJsonError("not an object", f"a JSON {type(value).__name__}")
    return value


def parse_value(text: str, make: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The one JSON value that `text` is; `make` builds its objects when they are no plain ones.

    Raises:
        BadJsonError: not strict JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=make or unique, parse_constant=_no_constant)
    except RecursionError as error:
        raise BadJsonError("too deep") from error
    except ValueError as error:
        raise BadJsonError("not JSON", _position(error)) from error


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of key-value pairs.

    Raises:
        BadJsonError: a duplicate key.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise BadJsonError("duplicate key", repr(key[:40]))
            seen.add(key)
    return found


def _no_constant(name: str) -> NoReturn:
    raise BadJsonError("not JSON", f"{name} is not JSON")


def _position(error: ValueError) -> str:
    return f"column {error.colno}" if isinstance(error, json.JSONDecodeError) else "a huge number"
