"""SWE-agent trajectories: text and the requested name, nothing that a server stated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hubtools.logs.bodies import body_objects
from hubtools.logs.exchange import Answer, Exchange, LogReader
from hubtools.logs.fields import objects, part
from hubtools.logs.jsonline import BadJsonError


def _fits(value: Mapping[str, Any]) -> bool:
    steps = objects(value.get("trajectory"))
    return bool(steps) and {"action", "observation", "response"} <= set(steps[0])


def _exchanges(value: Mapping[str, Any]) -> Iterator[Exchange]:
    requested = part(_config(value.get("replay_config")), "agent", "model", "name")
    for step in objects(value["trajectory"]):
        yield Exchange(
            role="agent",
            requested=requested,
            answer=Answer(missing="absent", worth="E"),
            at=step,
        )


def _config(config: Any) -> Any:
    try:  # newer versions keep it as text
        found, _ = body_objects(config)
    except BadJsonError:
        return None
    return found[0] if found else None


READER = LogReader("SWE-agent", _fits, _exchanges)
