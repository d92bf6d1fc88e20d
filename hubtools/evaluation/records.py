"""Reads a run back and believes nothing: every figure is computed again from the samples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_harness.runner import SCHEMA, score, summary
from eval_harness.suite import load_suite, suite_names
from hubtools.digests import sha256_bytes, sha256_json
from hubtools.errors import CheckError
from hubtools.evaluation.protocol import protocol_id
from hubtools.evaluation.statistics import Interval, bootstrap_mean, wilson
from hubtools.facts import Fact, Source, Spread, Subject

SAMPLES = "samples.jsonl"


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run whose figures agree with its samples.

    Args:
        sha256: of `run.json`.
        suite, title, description: the suite's id and words.
        n: scored items; `items` were asked, `failures` of them got no answer.
        cut_off: answers that ended because they reached the limit of tokens.
        metrics: name → {value, n, k?}.
        samples: one mapping per item, in the suite's order.
    """

    path: Path
    sha256: str
    suite: str
    title: str
    description: str
    protocol: Mapping[str, Any]
    protocol_id: str
    member: str
    weights: str
    seed: int
    date: str
    n: int
    items: int
    failures: int
    cut_off: int
    metrics: Mapping[str, Mapping[str, Any]]
    tokens: Mapping[str, int]
    samples: tuple[Mapping[str, Any], ...]

    def scores(self, metric: str) -> dict[str, float]:
        """Item id → score, of the items that were scored."""
        return {s["item"]: s["scores"][metric] for s in self.samples if not s["failure"]}

    def interval(self, metric: str) -> Interval:
        """95 % interval of a metric: Wilson for a proportion, bootstrap over items otherwise."""
        figures = self.metrics[metric]
        if "k" in figures:
            return wilson(figures["k"], figures["n"])
        return bootstrap_mean(list(self.scores(metric).values()))


def read_run(path: Path) -> Run:
    """Read `run.json` (or the folder that holds it) with the samples beside it.

    Raises:
        CheckError: HT410 a file is missing or damaged, or a figure is not what the samples give.
    """
    path = path / "run.json" if path.is_dir() else path
    try:
        raw = path.read_bytes()
        record = json.loads(raw)
        samples_raw = path.with_name(SAMPLES).read_bytes()
        samples = [json.loads(line) for line in samples_raw.splitlines()]
    except (OSError, ValueError) as error:
        raise _wrong(f"the run cannot be read: {error}", path) from error
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise _wrong(f"not a run record ({SCHEMA})", path)
    try:
        _check(record, samples, sha256_bytes(samples_raw), path)
        return _run(record, samples, path, sha256_bytes(raw))
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        what = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise _wrong(f"the run record is damaged: {what}", path) from error


def _check(
    record: Mapping[str, Any], samples: Sequence[Mapping[str, Any]], digest: str, path: Path
) -> None:
    suite = record["suite"]
    again = []
    for sample in samples:
        scored = {"extracted": None, "scores": None}
        if not sample["failure"]:
            scored = score(
                sample["output"], sample["answers"], suite["extractor"], suite["scorers"]
            )
        again.append({**sample, **scored})
    expected = {
        "samples_sha256": digest,
        "protocol_id": protocol_id(record["protocol"]),
        "suite_digest": sha256_json(suite),
        **summary(again, suite["scorers"]),
    }
    if record["items"] != suite["n"] or len({s["item"] for s in samples}) != suite["n"]:
        raise _wrong("the samples are not one for each item of the suite", path)
    for name, value in expected.items():
        if record[name] != value:
            raise _wrong(f"{name} is not what the samples give", path)
    asked = _bundled(suite)
    if asked and asked != [(s["item"], s["messages"], s["answers"]) for s in samples]:
        raise _wrong("the samples hold other questions or answers than the suite", path)
    if any(record["protocol"]["suite"][key] != suite[key] for key in record["protocol"]["suite"]):
        raise _wrong("protocol and suite name different questions", path)


def _bundled(identity: Mapping[str, Any]) -> list[Any]:
    """What the suite of this package asks, where it is the one that was run."""
    if identity["id"] not in suite_names():
        return []
    suite = load_suite(identity["id"])
    if suite.identity() != identity:
        return []
    return [(item.id, suite.messages(item), list(item.answers)) for item in suite.items]


def _run(record: Mapping[str, Any], samples: Sequence[Any], path: Path, digest: str) -> Run:
    names = Run.__dataclass_fields__.keys() - {"path", "sha256", "samples", "suite"}
    return Run(
        path=path,
        sha256=digest,
        suite=record["suite"]["id"],
        samples=tuple(samples),
        **{name: record[name] for name in names},
    )


def run_facts(run: Run, *, path_in_facts: str, member: str = "", weights: str = "") -> list[Fact]:
    """What a run says, as facts: `eval.<suite>.<metric>`, `.failures`, `.cut_off`, `.tokens`.

    Args:
        run: as `read_run` gave it.
        path_in_facts: where a reader of the facts finds `run.json`.
        member: the subject, where it is called otherwise than in the run.
        weights: likewise, its digest.
    """
    subject = Subject(member or run.member, weights=weights or run.weights)

    def fact(name: str, value: Any, unit: str, pointer: str, **more: Any) -> Fact:
        return Fact(
            id=f"eval.{run.suite}.{name}",
            value=value,
            status="measured",
            source=Source(path_in_facts, run.sha256, pointer),
            subject=subject,
            unit=unit,
            protocol=run.protocol_id,
            date=run.date,
            **more,
        )

    facts = []
    for name, figures in run.metrics.items():
        sure = run.interval(name)
        spread = Spread("ci", sure.low, sure.high, sure.method, sure.n, sure.level)
        more = {"n": figures["n"], "k": figures.get("k"), "spread": spread, "repeats": 1}
        facts.append(fact(name, figures["value"], "proportion", f"/metrics/{name}/value", **more))
    facts.append(fact("failures", run.failures, "items", "/failures", n=run.items))
    facts.append(fact("cut_off", run.cut_off, "answers", "/cut_off", n=run.n))
    if written := run.tokens["completion"]:
        facts.append(fact("tokens", written, "tokens", "/tokens/completion", n=run.n))
    return facts


def _wrong(message: str, path: Path) -> CheckError:
    return CheckError(
        "HT410",
        message,
        where=str(path),
        detail=("Its figures are not used.",),
        next="evaluate again: hubtools evaluate MODEL --again",
    )
