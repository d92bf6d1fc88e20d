"""Bedrock's Converse, whose responses name no model at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubtools.logs.exchange import Answer, ApiFormat
from hubtools.logs.fields import name, part


def _fits(value: Mapping[str, Any]) -> bool:
    return "stopReason" in value and isinstance(part(value, "output", "message"), Mapping)


def _answer(value: Mapping[str, Any], streamed: bool) -> Answer:
    id = name(part(value, "ResponseMetadata", "RequestId"))
    return Answer(missing="absent", id=id, worth="E")


FORMAT = ApiFormat("Bedrock Converse", _fits, _answer)
