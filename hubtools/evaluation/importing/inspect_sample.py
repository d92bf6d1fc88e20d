"""A sample of an inspect log becomes a sample of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubtools.evaluation.importing.found import Sample, share

FIELDS = (
    *("id", "epoch", "input", "target", "messages", "output", "scores", "error", "limit"),
    *("metadata", "attachments", "model_usage"),
)
"""What is read of a sample; events and store may be a hundred times as large."""

_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Correct, partly, incorrect, no answer: as inspect counts them."""
_CUT = {"max_tokens": "length", "model_length": "context"}
_ATTACHED = "attachment://"


def values_of(told: Mapping[str, Any]) -> dict[str, float]:
    """Scores from 0 to 1 by scorer; one that gives several is `scorer.name`."""
    values: dict[str, float] = {}
    for scorer, score in (told.get("scores") or {}).items():
        value = score["value"]
        parts = value if isinstance(value, dict) else {"": value}
        for name, part in parts.items():
            known = _LETTERS.get(part) if isinstance(part, str) else share(part)
            if known is not None:
                values[f"{scorer}.{name}" if name else scorer] = known
    return values


def sample_of(told: Mapping[str, Any], metrics: list[str]) -> Sample:
    """The sample; one that ended with an error is a failure without scores."""
    prompt, transcript = _messages(told)
    output = told.get("output") or {}
    choice: Mapping[str, Any] = next(iter(output.get("choices") or ()), {})
    stopped = str(choice.get("stop_reason") or "")
    error, limit = told.get("error"), told.get("limit")
    said = [m["content"] for m in transcript if m["role"] == "assistant"]
    values, scores = values_of(told), told.get("scores") or {}
    return {
        "item": str(told["id"]),
        "category": "all",
        "trial": int(told["epoch"]) - 1,
        "messages": prompt,
        "answers": _texts(told.get("target")),
        "transcript": transcript,
        "output": said[-1] if said else None,
        "finish": "max_turns" if limit else _CUT.get(stopped, stopped),
        "turns": len(said),
        "truncated": bool(limit) or stopped in _CUT,
        "tokens": _tokens(told),
        "failure": _line(error) if error else "",
        "failure_kind": "infrastructure" if error else "",
        "extracted": None
        if error
        else {name: _answer(scores.get(name.partition(".")[0])) for name in metrics},
        "scores": None if error else {name: values[name] for name in metrics},
        "served": {"model": str(output["model"])} if choice and output.get("model") else None,
        "extra": {"metadata": told["metadata"]} if told.get("metadata") else {},
    }


def _messages(told: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """What was asked, and what followed from the first word that the model wrote."""
    attached = told.get("attachments") or {}
    messages = [_message(message, attached) for message in told.get("messages") or ()]
    given = told["input"] if isinstance(told["input"], list) else []
    shots = sum(message.get("role") == "assistant" for message in given)
    spoken = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    start = spoken[shots] if len(spoken) > shots else len(messages)
    return messages[:start], messages[start:]


def _message(message: Mapping[str, Any], attached: Mapping[str, str]) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content)
    text = str(content or "")
    if text.startswith(_ATTACHED):
        text = str(attached.get(text.removeprefix(_ATTACHED), text))
    calls = message.get("tool_calls")
    return {"role": message["role"], "content": text, **({"tool_calls": calls} if calls else {})}


def _tokens(told: Mapping[str, Any]) -> dict[str, int]:
    used = (told.get("model_usage") or {}).values() or [(told.get("output") or {}).get("usage")]
    return {
        ours: sum(int((one or {}).get(theirs) or 0) for one in used)
        for ours, theirs in (("prompt", "input_tokens"), ("completion", "output_tokens"))
    }


def _texts(target: Any) -> list[str]:
    return [str(one) for one in target] if isinstance(target, list) else [str(target)]


def _answer(score: Mapping[str, Any] | None) -> str | None:
    answer = (score or {}).get("answer")
    return None if answer is None else str(answer)


def _line(error: Any) -> str:
    text = error.get("message", "") if isinstance(error, dict) else error
    return (str(text).strip().splitlines() or ["an error without words"])[0][:300]
