"""Response bodies: the JSON objects in a text that is JSON, JSON lines or server-sent events."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from hubtools.logs.containers import MAX_LINE
from hubtools.logs.jsonline import BadJsonError, parse_value

_GZIP = b"\x1f\x8b"


def body_objects(body: Any) -> tuple[list[Mapping[str, Any]], bool]:
    """The objects of a body, and whether it was streamed (any number of objects).

    Text that is none of the known kinds gives no object.

    Raises:
        BadJsonError: a body that looks like JSON and is not, or that says a key twice.
    """
    if isinstance(body, bytes):
        body = _text(body)
    if isinstance(body, str):
        text = body.strip()
        if is_events(text):
            return list(_objects(event_data(text))), True
        if not text.startswith(("{", "[")):
            return [], False
        body = _json_or_lines(text)
    if isinstance(body, Mapping):
        return [body], False
    return (list(_objects(body)), True) if isinstance(body, list) else ([], False)


def is_events(text: str) -> bool:
    """Whether a text looks like server-sent events."""
    return text.startswith(("data:", "event:", "id:", ":", "retry:"))


def event_data(text: str) -> Iterator[Any]:
    """The JSON values in the `data:` lines of server-sent events."""
    for line in text.splitlines():
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if data.startswith(("{", "[")) and data != "[DONE]":
            yield parse_value(data)


def _objects(values: Any) -> Iterator[Mapping[str, Any]]:
    return (value for value in values if isinstance(value, Mapping))


def _json_or_lines(text: str) -> Any:
    try:
        return parse_value(text)
    except BadJsonError as error:
        lines = text.split("\n")
        if error.kind != "not JSON" or len(lines) < 2:
            raise
        return [parse_value(line) for line in lines if line.strip()]


def _text(body: bytes) -> str:
    if body.startswith(_GZIP):
        try:
            body = zlib.decompressobj(wbits=31).decompress(body, MAX_LINE)
        except zlib.error as error:
            raise BadJsonError("damaged", "the body's gzip data is damaged") from error
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return ""
