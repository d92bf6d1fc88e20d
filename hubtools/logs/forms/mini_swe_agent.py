"""mini-SWE-agent trajectories: each assistant message keeps LiteLLM's dump of its response."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hubtools.logs.exchange import Answer, Exchange, LogReader
from hubtools.logs.fields import objects, part


def _fits(value: Mapping[str, Any]) -> bool:
    version = value.get("trajectory_format")
    return (
        isinstance(version, str)
        and version.startswith("mini-swe-agent")
        and isinstance(value.get("messages"), list)
    )


def _exchanges(value: Mapping[str, Any]) -> Iterator[Exchange]:
    requested = part(value, "info", "config", "model", "model_name")
    for message in objects(value["messages"]):
        if message.get("role") == "assistant":
            response = part(message, "extra", "response")
            known = isinstance(response, Mapping)
            yield Exchange(
                response=response if known else None,
                role="agent",
                requested=requested,
                gateway=True,
                answer=None if known else Answer(missing="absent", worth="E"),
                at=message,
            )


READER = LogReader("mini-SWE-agent", _fits, _exchanges)
