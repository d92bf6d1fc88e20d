"""τ²-bench results: whole files and single simulations.

Since 1.0 `raw_data` is the whole response; before, it is the chosen answer alone, which names no
model. The role is the outer message's: in `raw_data` the user simulator calls itself assistant.
The first assistant message is a fixed greeting that no model made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hubtools.logs.answers import api_of
from hubtools.logs.exchange import Answer, Exchange, LogReader
from hubtools.logs.fields import objects, part

_ROLES = {"assistant": ("agent", "agent_info"), "user": ("user-simulator", "user_info")}


def _fits(value: Mapping[str, Any]) -> bool:
    if isinstance(value.get("simulations"), list):
        return isinstance(value.get("info"), Mapping) or "tasks" in value
    return _simulation(value)


def _simulation(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("messages"), list) and {"task_id", "termination_reason"} <= set(
        value
    )


def _exchanges(value: Mapping[str, Any]) -> Iterator[Exchange]:
    runs = [value] if _simulation(value) else objects(value["simulations"])
    for run in runs:
        for place, message in enumerate(objects(run.get("messages"))):
            if message.get("role") in ("assistant", "user"):
                yield _turn(message, value.get("info"), first=place == 0)


def _turn(message: Mapping[str, Any], info: Any, *, first: bool) -> Exchange:
    role, settings = _ROLES[message["role"]]
    raw = message.get("raw_data")
    whole = isinstance(raw, Mapping) and api_of(raw) is not None
    return Exchange(
        response=raw if whole else None,
        role=role,
        requested=part(info, settings, "llm"),
        gateway=True,
        harness=first and raw is None and message["role"] == "assistant",
        answer=None if whole else Answer(missing="absent", worth="E"),
        at=message,
    )


READER = LogReader("τ²-bench", _fits, _exchanges)
