"""Every text in what a pickle or a JSON file holds, and where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from hubtools.checkpoint.unpickle import Record

_POINTER_LIMIT = 200
_SHORT_BYTES = 4096
_PATH = re.compile(r"pathlib(?:\.\w+)*\.(?:Pure)?(Posix|Windows|)Path")
_TELLING = (str, bytes, bytearray, dict, list, tuple, Record)


def texts(value: Any) -> Iterator[tuple[str, str]]:
    """(pointer, text) of every string in what `read_pickle` or a JSON reader gave, each once.

    A record's own name is no text; the pointer of a field is `/field` as in a JSON pointer, that
    of a key is its table's and ` (key)`. A `pathlib` path is one text, and so are short bytes.
    """
    seen: set[int] = set()
    keys: set[str] = set()
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        place, item = waiting.pop()
        if id(item) in seen or not isinstance(item, _TELLING):
            continue
        seen.add(id(item))
        text = _text(item)
        if text is not None:
            yield place or "/", text
            continue
        if isinstance(item, dict):
            fresh = dict.fromkeys(k for key in item if (k := _text(key)) and k not in keys)
            keys.update(fresh)
            yield from ((f"{place or '/'} (key)", key) for key in fresh)
        waiting += [(_below(place, key), inner) for key, inner in reversed(_children(item))]


def _text(item: Any) -> str | None:
    """An item that is a text by itself; empty for bytes that are none."""
    if isinstance(item, bytes | bytearray):
        return item.decode("utf-8", errors="ignore") if len(item) <= _SHORT_BYTES else ""
    if isinstance(item, Record) and (match := _PATH.fullmatch(item.name)):
        parts = item.args if isinstance(item.args, tuple) else ()
        if parts and all(isinstance(part, str) for part in parts):
            flavour = PureWindowsPath if match[1] == "Windows" else PurePosixPath
            return str(flavour(*parts))
    if isinstance(item, Record) and item.name == "key":  # too long to be one in a dict of ours
        return item.args[0] if isinstance(item.args[0], str) else None
    return item if isinstance(item, str) else None


def _children(item: Any) -> list[tuple[Any, Any]]:
    if isinstance(item, dict):
        return list(item.items())
    if isinstance(item, Record):  # fields of an object stand directly below it
        return [("", item.args), *(("", part) for part in item.parts)]
    return list(enumerate(item))


def _below(place: str, key: Any) -> str:
    if isinstance(key, Record) or key == "" or len(place) > _POINTER_LIMIT:
        return place
    return f"{place}/{str(key)[:_POINTER_LIMIT].replace('~', '~0').replace('/', '~1')}"
