"""Anthropic's Messages API, whole or streamed; the body holds no time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubtools.logs.exchange import Answer, ApiFormat
from hubtools.logs.fields import missing, name


def _fits(value: Mapping[str, Any]) -> bool:
    return _start(value) or (value.get("type") == "message" and value.get("role") == "assistant")


def _start(value: Mapping[str, Any]) -> bool:
    return value.get("type") == "message_start" and isinstance(value.get("message"), Mapping)


def _answer(value: Mapping[str, Any], streamed: bool) -> Answer:
    piece = _start(value)
    body = value["message"] if piece else value
    return Answer(name(body.get("model")), missing(body), name(body.get("id")), piece=piece)


FORMAT = ApiFormat("Anthropic Messages", _fits, _answer)
