"""lm-eval's samples become samples of our record; figures that are no share of 1 are named."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hubtools.evaluation.lmeval.tasks_child import FAILED, NO_TEXT

Raw = Mapping[str, Any]


def metric_names(samples: Iterable[Raw]) -> tuple[list[str], list[str]]:
    """Metrics that every scored sample has as a number from 0 to 1, and those that are left out.

    A metric of another filter than `none` is named `metric,filter`, as lm-eval names it.
    """
    shares: dict[str, bool] = {}
    tasks: dict[str, set[str]] = {}
    for sample in samples:
        found = tasks.setdefault(sample["task"], set())
        for metric in sample["metrics"]:
            name = _name(metric, sample["filter"])
            found.add(name)
            good = failure(sample) != ("", "") or _share(sample.get(metric)) is not None
            shares[name] = shares.get(name, True) and good
    everywhere = set.intersection(*tasks.values()) if tasks else set()
    kept = [name for name, good in shares.items() if good and name in everywhere]
    return kept, [name for name in shares if name not in kept]


def samples_of(raw: Iterable[Raw], metrics: list[str]) -> Iterator[dict[str, Any]]:
    """One sample per document, in the order of tasks and documents; its filters put together."""
    documents: dict[tuple[str, int], list[Raw]] = {}
    for sample in raw:
        documents.setdefault((sample["task"], sample["doc_id"]), []).append(sample)
    order = list(dict.fromkeys(task for task, _ in documents))
    for task, number in sorted(documents, key=lambda key: (order.index(key[0]), key[1])):
        yield _sample(documents[task, number], metrics)


def failure(sample: Raw) -> tuple[str, str]:
    """Why a sample cannot be scored, and its kind; two empty texts when it can."""
    answers = _flat(sample["resps"])
    if any(answer == FAILED or (isinstance(answer, float) and math.isnan(answer))
           for answer in answers):  # fmt: skip
        return "the server gave no answer; the log says why", "infrastructure"
    if NO_TEXT in answers:
        return "the reply has no text", "no_text"
    return "", ""


def _sample(filtered: list[Raw], metrics: list[str]) -> dict[str, Any]:
    first = filtered[0]
    why, kind = failure(first)
    scores = {
        name: _share(sample[metric])
        for sample in filtered
        for metric in sample["metrics"]
        if (name := _name(metric, sample["filter"])) in metrics and not why
    }
    texts = [answer for answer in _flat(first["resps"]) if isinstance(answer, str)]
    return {
        "item": f"{first['task']}/{first['doc_id']}",
        "category": first["task"],
        "trial": 0,
        "messages": _prompt(first),
        "answers": [str(first["target"])],
        "output": None if why or not texts else texts[0],
        "finish": "",
        "failure": why,
        "failure_kind": kind,
        "extracted": None,
        "scores": None if why else scores,
        "extra": {
            "doc_hash": first["doc_hash"],
            "responses": first["resps"] if not texts and not why else [],
            "filtered": {sample["filter"]: sample["filtered_resps"] for sample in filtered},
        },
    }


def _prompt(sample: Raw) -> list[dict[str, Any]]:
    """The first request's prompt; a chat comes as JSON in a list."""
    arguments = sample["arguments"]
    first = arguments[0] if isinstance(arguments, list) else next(iter(arguments.values()))
    asked = first[0] if isinstance(first, list) else next(iter(first.values()))
    text = asked[0] if isinstance(asked, list) and asked else asked
    try:
        chat = json.loads(text)
    except (TypeError, ValueError):
        chat = None
    if isinstance(chat, list) and all(isinstance(m, dict) and "content" in m for m in chat):
        return chat
    return [{"role": "user", "content": str(text)}]


def _name(metric: str, filter: str) -> str:
    return metric if filter == "none" else f"{metric},{filter}"


def _share(value: Any) -> float | None:
    if isinstance(value, bool | int | float) and 0 <= value <= 1:
        return float(value)
    return None


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in _flat(part)]
    return [value]
