"""Ollama's own API: its `model` is copied from the request, so it is no evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubtools.logs.exchange import Answer, ApiFormat
from hubtools.logs.fields import iso_seconds, missing, name


def _fits(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("done"), bool) and isinstance(value.get("created_at"), str)


def _answer(value: Mapping[str, Any], streamed: bool) -> Answer:
    return Answer(
        name(value.get("model")),
        missing(value),
        created=iso_seconds(value.get("created_at")),
        worth="E",
    )


FORMAT = ApiFormat("Ollama", _fits, _answer)
