"""LiteLLM's logging objects, alone or in the arguments of a callback.

`model` there is the requested one. The raw body of a call that was not streamed is kept in
`original_response`, where the provider's own name stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hubtools.logs.exchange import Exchange, LogReader
from hubtools.logs.fields import iso_seconds, seconds


def _fits(value: Mapping[str, Any]) -> bool:
    inner = value.get("standard_logging_object", value)
    return (
        isinstance(inner, Mapping)
        and "response" in inner
        and "hidden_params" in inner
        and isinstance(inner.get("model"), str)
    )


def _exchanges(value: Mapping[str, Any]) -> Iterator[Exchange]:
    inner = value.get("standard_logging_object", value)
    raw = value.get("original_response")
    direct = isinstance(raw, str) and raw.lstrip().startswith("{")
    start = inner.get("startTime")
    failed = inner.get("status") == "failure"
    yield Exchange(
        {"model": inner["model"], "stream": bool(inner.get("stream"))},
        raw if direct else inner["response"],
        role=value.get("role"),
        date=seconds(start) if isinstance(start, int | float) else iso_seconds(start),
        error=(inner.get("error_str") or "failure") if failed else None,
        gateway=not direct,
        at=value,
    )


READER = LogReader("LiteLLM", _fits, _exchanges)
