"""Gemini's generateContent; the name is `modelVersion`, and only Vertex tells the time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubtools.logs.exchange import Answer, ApiFormat
from hubtools.logs.fields import iso_seconds, missing, name


def _fits(value: Mapping[str, Any]) -> bool:
    if isinstance(value.get("candidates"), list):
        return True
    return "usageMetadata" in value and ("modelVersion" in value or "promptFeedback" in value)


def _answer(value: Mapping[str, Any], streamed: bool) -> Answer:
    return Answer(
        name(value.get("modelVersion")),
        missing(value, "modelVersion"),
        name(value.get("responseId")),
        iso_seconds(value.get("createTime")),
        piece=streamed,
    )


FORMAT = ApiFormat("Gemini generateContent", _fits, _answer)
