"""OpenAI's Responses API, whole or as the events of a stream that carry the response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubtools.logs.exchange import Answer, ApiFormat
from hubtools.logs.fields import missing, name, seconds


def _fits(value: Mapping[str, Any]) -> bool:
    return value.get("object") == "response" or _event(value)


def _event(value: Mapping[str, Any]) -> bool:
    kind = value.get("type")
    return (
        isinstance(kind, str)
        and kind.startswith("response.")
        and isinstance(value.get("response"), Mapping)
    )


def _answer(value: Mapping[str, Any], streamed: bool) -> Answer:
    piece = _event(value)
    body = value["response"] if piece else value
    return Answer(
        name(body.get("model")),
        missing(body),
        name(body.get("id")),
        seconds(body.get("created_at")),
        name(body.get("system_fingerprint")),
        piece=piece,
    )


FORMAT = ApiFormat("OpenAI Responses", _fits, _answer)
