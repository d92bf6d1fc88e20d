"""Inspect's logs: the samples in an `.eval` archive, or a `.json` log.

`call.response` is the provider's response as the SDK gave it; without it only Inspect's own
`output.model` is left, which some of its providers fill with the requested name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hubtools.logs.exchange import Answer, Exchange, LogReader
from hubtools.logs.fields import iso_seconds, missing, name, objects, part


def _fits(value: Mapping[str, Any]) -> bool:
    return _sample(value) or (
        isinstance(part(value, "eval", "model"), str) and isinstance(value.get("samples"), list)
    )


def _sample(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("events"), list) and {"id", "epoch"} <= set(value)


def _exchanges(value: Mapping[str, Any]) -> Iterator[Exchange]:
    for sample in [value] if _sample(value) else objects(value["samples"]):
        for event in objects(sample.get("events")):
            if event.get("event") == "model" and not event.get("pending"):
                yield _call(event)


def _call(event: Mapping[str, Any]) -> Exchange:
    request, response = part(event, "call", "request"), part(event, "call", "response")
    raw = isinstance(response, Mapping) and bool(response)
    output = event.get("output")
    output = output if isinstance(output, Mapping) else {}
    return Exchange(
        request if isinstance(request, Mapping) else None,
        response if raw else None,
        role=event.get("role"),
        requested=event.get("model"),
        date=iso_seconds(event.get("timestamp")),
        error=event.get("error") or output.get("error"),
        answer=None if raw else Answer(name(output.get("model")), missing(output), worth="D"),
        at=event,
    )


READER = LogReader("Inspect", _fits, _exchanges)
