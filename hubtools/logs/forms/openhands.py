"""OpenHands output: LiteLLM's dump of a response stands beside the action and the observation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hubtools.logs.exchange import Exchange, LogReader
from hubtools.logs.fields import objects, part


def _fits(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("history"), list) and isinstance(
        part(value, "metadata", "llm_config"), Mapping
    )


def _exchanges(value: Mapping[str, Any]) -> Iterator[Exchange]:
    requested = part(value, "metadata", "llm_config", "model")
    for event in objects(value["history"]):
        response = part(event, "tool_call_metadata", "model_response")
        if isinstance(response, Mapping):
            yield Exchange(
                response=response, role="agent", requested=requested, gateway=True, at=event
            )


READER = LogReader("OpenHands", _fits, _exchanges)
