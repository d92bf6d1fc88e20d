"""Edits of a config.json that leave every other byte as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

Edits = Mapping[str, Any]

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


def edited(data: bytes, edits: Edits) -> bytes:
    """The same JSON object with other values.

    Args:
        data: JSON in any Unicode encoding, which is kept.
        edits: dotted path → value; a path that is not there is added at the end of its object.
            None removes the key.
    """
    encoding = json.detect_encoding(data)
    text = data.decode(encoding, "surrogatepass")
    wanted = json.loads(text)
    for path, value in edits.items():
        _set(wanted, path.split("."), value)
        changed = _replaced(text, path.split("."), value)
        text = changed if changed is not None else text
    if json.loads(text) != wanted:  # a key that is there twice, or one that had to go
        text = json.dumps(wanted, indent=_indent(text)) + "\n"
    return text.encode(encoding, "surrogatepass")


def effective(config: Mapping[str, Any], edits: Edits) -> dict[str, Any]:
    """Only the edits that say something else than the configuration does."""
    return {path: value for path, value in edits.items() if _get(config, path) != value}


def everywhere(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Where a key stands, in the configuration and in that of its text model: path → value."""
    text = config.get("text_config")
    found = {key: config[key]} if key in config else {}
    if isinstance(text, Mapping) and key in text:
        found[f"text_config.{key}"] = text[key]
    return found


def _get(config: Mapping[str, Any], path: str) -> Any:
    value: Any = config
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


def _set(config: dict[str, Any], path: list[str], value: Any) -> None:
    for key in path[:-1]:
        config = config[key]
    if value is None:
        config.pop(path[-1], None)
    else:
        config[path[-1]] = value


def _replaced(text: str, path: list[str], value: Any) -> str | None:
    """The text with one value exchanged or one member added; None where that cannot be done."""
    start = _SPACE.match(text).end()  # type: ignore[union-attr]
    for key in path[:-1]:
        found = {name: begin for name, begin, _ in _members(text, start)}
        if key not in found or text[found[key]] != "{":
            return None
        start = found[key]
    members = list(_members(text, start))
    spans = {name: (begin, end) for name, begin, end in members}
    if value is None or not members or len(spans) < len(members):
        return None
    if path[-1] in spans:
        begin, end = spans[path[-1]]
        return text[:begin] + _dumped(text, begin, value) + text[end:]
    _, _, end = members[-1]
    separator = text[start + 1 : text.index('"', start)]
    new = f",{separator}{json.dumps(path[-1])}: "
    return text[:end] + new + _dumped(text, text.index('"', start), value) + text[end:]


def _members(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    """Key, begin and end of each value of the object at `start`."""
    position = _SPACE.match(text, start + 1).end()  # type: ignore[union-attr]
    while text[position] != "}":
        key, position = _DECODER.raw_decode(text, position)
        position = text.index(":", position) + 1
        begin = _SPACE.match(text, position).end()  # type: ignore[union-attr]
        _, end = _DECODER.raw_decode(text, begin)
        yield key, begin, end
        position = _SPACE.match(text, end).end()  # type: ignore[union-attr]
        if text[position] == ",":
            position = _SPACE.match(text, position + 1).end()  # type: ignore[union-attr]


def _dumped(text: str, position: int, value: Any) -> str:
    """A value as it looks in this file, indented as the line at `position`."""
    line = text[text.rfind("\n", 0, position) + 1 : position]
    margin = line[: len(line) - len(line.lstrip())]
    if "\n" not in text:
        return json.dumps(value)
    lines = json.dumps(value, indent=_indent(text)).split("\n")
    return f"\n{margin}".join(lines)


def _indent(text: str) -> int | str | None:
    found = re.match(r"\s*\{\n([ \t]+)", text)
    return found[1] if found else (2 if "\n" in text else None)
