"""A response by itself, as an SDK object or a line of a stream is dumped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hubtools.logs.answers import api_of, is_stream_part
from hubtools.logs.exchange import Exchange, LogReader


def _fits(value: Mapping[str, Any]) -> bool:
    return bool(value.get("error")) or is_stream_part(value) or api_of(value) is not None


def _exchanges(value: Mapping[str, Any]) -> Iterator[Exchange]:
    if not is_stream_part(value):
        asked = value.get("request")
        yield Exchange(asked if isinstance(asked, Mapping) else None, value, role=value.get("role"))


READER = LogReader("single responses", _fits, _exchanges)
