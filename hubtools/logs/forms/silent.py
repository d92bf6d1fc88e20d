"""Logs that keep the text and not the response: nothing in them tells which model answered.

They are read so that the verdict is UNVERIFIABLE, with the number of turns, instead of unreadable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hubtools.logs.exchange import Answer, Exchange, LogReader
from hubtools.logs.fields import objects

_NOTHING = Answer(missing="absent", worth="E")
_ROLES = {"assistant": "agent", "user": "user-simulator"}


def _tau_bench(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("traj"), list) and {"task_id", "reward"} <= value.keys()


def _tau_bench_turns(value: Mapping[str, Any]) -> Iterator[Exchange]:
    for turn in objects(value["traj"]):
        role = turn.get("role")
        if isinstance(role, str) and role in _ROLES:
            yield Exchange(role=_ROLES[role], answer=_NOTHING, at=turn)


def _verl(value: Mapping[str, Any]) -> bool:
    return {"input", "output", "score", "step"} <= value.keys()


def _distilabel(value: Mapping[str, Any]) -> bool:
    return {"model_name", "distilabel_metadata"} <= value.keys()


def _row(value: Mapping[str, Any]) -> Iterator[Exchange]:
    # distilabel writes the name that its settings asked for
    yield Exchange(requested=value.get("model_name"), answer=_NOTHING)


TAU_BENCH = LogReader("τ-bench", _tau_bench, _tau_bench_turns)
VERL = LogReader("verl rollouts", _verl, _row)
DISTILABEL = LogReader("distilabel rows", _distilabel, _row)
