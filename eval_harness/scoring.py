"""From what a model wrote to scores: what is extracted, what it is worth, what it adds up to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from eval_harness.chat import Message
from eval_harness.extractors import EXTRACTORS, Extraction
from eval_harness.scorers import SCORERS
from eval_harness.suite_model import Suite

CUT = frozenset({"length", "max_turns", "context"})
"""Ways to finish that are no end: tokens, turns or context were used up."""

Sample = Mapping[str, Any]


def score(
    metrics: Sequence[Mapping[str, Any]],
    answers: Sequence[str],
    prompt: Sequence[Message],
    transcript: Sequence[Message],
    finish: str,
) -> dict[str, Any]:
    """The fields of a sample that scoring gives.

    Args:
        metrics: as in the suite's identity: `name`, `extractor`, `scorer`, maybe `tiers`.
        answers: accepted ones.
        prompt: the question as asked.
        transcript: what followed.
        finish: how it ended.

    Returns:
        `extracted` and `scores` by metric; `tier` and `conflict` of the first extractor that has
        rungs; `truncated`, whether the writing ended before the model was done.

    Raises:
        KeyError: a metric whose extractor or scorer this version does not have.
    """
    found: dict[str, Extraction] = {}
    for metric in metrics:
        name = metric["extractor"]
        if name not in found:
            found[name] = EXTRACTORS[name](prompt, transcript, finish)
    extracted, scores = {}, {}
    for metric in metrics:
        extraction, tiers = found[metric["extractor"]], metric.get("tiers")
        text = extraction.text if not tiers or extraction.tier in tiers else None
        extracted[metric["name"]] = text
        scores[metric["name"]] = SCORERS[metric["scorer"]](text, answers)
    rung = next((e for e in found.values() if e.tier is not None), Extraction(None))
    return {
        "extracted": extracted,
        "tier": rung.tier,
        "conflict": rung.conflict,
        "truncated": finish in CUT or any(e.truncated for e in found.values()),
        "scores": scores,
    }


def samples_of(suite: Suite, entries: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The samples of journal entries in the suite's order, scored unless they failed."""
    metrics = [metric.to_json() for metric in suite.metrics]
    for place, entry in enumerate(entries):
        yield _sample(suite, metrics, place, entry)


def _sample(
    suite: Suite, metrics: Sequence[Mapping[str, Any]], place: int, entry: Mapping[str, Any]
) -> dict[str, Any]:
    item, trial = suite.at(place)
    outcome = entry["outcome"]
    prompt = suite.messages(item)
    said = [m["content"] for m in outcome["transcript"] if m["role"] == "assistant"]
    sample: dict[str, Any] = {
        "item": item.id,
        "category": item.category,
        "trial": trial,
        "messages": prompt,
        "answers": list(item.answers),
        "output": said[-1] if said else None,
        **outcome,
        "extracted": {metric["name"]: None for metric in metrics},
        "tier": None,
        "conflict": False,
        "truncated": False,
        "scores": None,
    }
    if not outcome["failure"]:
        sample |= score(metrics, item.answers, prompt, outcome["transcript"], outcome["finish"])
    return sample


class Tally:
    """Adds samples up to the figures of a run, one at a time; memory grows with items alone.

    Args:
        metrics: names, in the order of tables.
        average: `macro` adds the mean over categories.
    """

    def __init__(self, metrics: Sequence[str], average: str = "micro") -> None:
        self._metrics, self._average = tuple(metrics), average
        self._whole, self._categories = _Sums(self._metrics), dict[str, _Sums]()
        self._kinds, self._tiers = Counter[str](), Counter[str]()
        self._served = {"model": Counter[str](), "fingerprint": Counter[str]()}
        self._tokens = {"prompt": 0, "completion": 0}
        self._unextracted = self._cut_off = self._conflicts = 0
        self._trials = 0

    def add(self, sample: Sample) -> None:
        """One more sample; fields that a foreign harness does not know may be absent.

        Raises:
            KeyError: a metric is missing.
            ValueError: a score is not between 0 and 1.
        """
        category = self._categories.setdefault(sample["category"], _Sums(self._metrics))
        scores = sample["scores"]
        for sums in (self._whole, category):
            sums.add(sample["item"], scores)
        self._trials = max(self._trials, sample.get("trial", 0) + 1)
        for side, name in (sample.get("served") or {}).items():
            if side in self._served and name:
                self._served[side][name] += 1
        if scores is None:
            self._kinds[sample.get("failure_kind") or "unknown"] += 1
            return
        extracted = sample.get("extracted")
        self._unextracted += extracted is not None and not any(
            text is not None for text in extracted.values()
        )
        self._cut_off += bool(sample.get("truncated"))
        self._conflicts += bool(sample.get("conflict"))
        if sample.get("tier") is not None:
            self._tiers[str(sample["tier"])] += 1
        tokens = sample.get("tokens") or {}
        for side in self._tokens:
            self._tokens[side] += tokens.get(side) or 0

    def figures(self) -> dict[str, Any]:
        """Every field of `run.json` that the samples decide."""
        categories = {name: sums.figures() for name, sums in self._categories.items()}
        whole = self._whole.figures()
        return {
            "items": whole["items"],
            "trials": self._trials,
            "samples": whole["n"] + whole["failures"],
            "n": whole["n"],
            "failures": whole["failures"],
            "failure_kinds": dict(self._kinds),
            "unextracted": self._unextracted,
            "cut_off": self._cut_off,
            "conflicts": self._conflicts,
            "metrics": whole["metrics"],
            "categories": categories,
            "macro": self._macro(categories.values()) if self._average == "macro" else {},
            "tiers": dict(self._tiers),
            "tokens": dict(self._tokens),
            "served": {side: dict(names) for side, names in self._served.items() if names},
        }

    def _macro(self, categories: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        scored = [category["metrics"] for category in categories if category["n"]]
        return {
            name: {
                "value": math.fsum(metrics[name]["value"] for metrics in scored) / len(scored),
                "categories": len(scored),
            }
            for name in self._metrics
            if scored
        }


class _Sums:
    """Figures of a run or of one of its categories."""

    def __init__(self, metrics: Sequence[str]) -> None:
        self._totals = dict.fromkeys(metrics, 0.0)
        self._graded = set[str]()
        self._items, self._scored = set[str](), set[str]()
        self._n = self._failures = 0

    def add(self, item: str, scores: Mapping[str, float] | None) -> None:
        self._items.add(item)
        if scores is None:
            self._failures += 1
            return
        self._scored.add(item)
        self._n += 1
        for name in self._totals:
            value = scores[name]
            if not 0 <= value <= 1:
                raise ValueError(f"{name} {value} is not between 0 and 1")
            self._totals[name] += value
            if value not in (0, 1):
                self._graded.add(name)

    def figures(self) -> dict[str, Any]:
        metrics = {name: self._metric(name) for name in self._totals} if self._n else {}
        return {
            "n": self._n,
            "items": len(self._items),
            "failures": self._failures,
            "metrics": metrics,
        }

    def _metric(self, name: str) -> dict[str, Any]:
        total = self._totals[name]
        counted = {} if name in self._graded else {"k": int(total)}
        return {"value": total / self._n, "n": self._n, "items": len(self._scored), **counted}
