"""OpenTelemetry spans with the GenAI attributes, as OTLP JSON or one span an object: telemetry.

One span covers all retries of a call, and some instrumentations copy the requested name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hubtools.logs.exchange import Answer, Exchange, LogReader
from hubtools.logs.fields import iso_seconds, missing, name, objects, part

_NAME = "gen_ai.response.model"
_CALLS = ("chat", "text_completion", "generate_content")


def _fits(value: Mapping[str, Any]) -> bool:
    if isinstance(value.get("resourceSpans"), list):
        return True
    attributes = value.get("attributes")
    return isinstance(attributes, Mapping) and any(
        str(key).startswith("gen_ai.") for key in attributes
    )


def _exchanges(value: Mapping[str, Any]) -> Iterator[Exchange]:
    for span in _spans(value):
        attributes = _attributes(span.get("attributes"))
        if _NAME not in attributes and attributes.get("gen_ai.operation.name") not in _CALLS:
            continue
        yield Exchange(
            requested=attributes.get("gen_ai.request.model"),
            date=_start(span),
            error=attributes.get("error.type"),
            answer=Answer(
                name(attributes.get(_NAME)),
                missing(attributes, _NAME),
                name(attributes.get("gen_ai.response.id")),
                fingerprint=name(attributes.get("openai.response.system_fingerprint")),
                provider=name(attributes.get("gen_ai.provider.name")),
                worth="D",
            ),
            at=span,
        )


def _spans(value: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "resourceSpans" not in value:
        yield value
        return
    for resource in objects(value["resourceSpans"]):
        for scope in objects(resource.get("scopeSpans")):
            yield from objects(scope.get("spans"))


def _attributes(attributes: Any) -> Mapping[str, Any]:
    if isinstance(attributes, Mapping):
        return attributes
    return {
        str(item.get("key")): part(item, "value", "stringValue") for item in objects(attributes)
    }


def _start(span: Mapping[str, Any]) -> float | None:
    nanoseconds = span.get("startTimeUnixNano")
    if isinstance(nanoseconds, str) and nanoseconds.isdecimal() and len(nanoseconds) < 25:
        return int(nanoseconds) / 1e9
    return iso_seconds(span.get("start_time"))


READER = LogReader("OpenTelemetry", _fits, _exchanges)
