"""What runs say, as facts: `eval.<suite>.<metric>`, `.<category>.<metric>`, `.macro.<metric>`,
`.failures`, `.cut_off`, `.tokens`, `.tiers.<tier>`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from hubtools.errors import CheckError
from hubtools.evaluation.records import Run
from hubtools.evaluation.repeats import same_checkpoint, standing
from hubtools.evaluation.score import MACRO, WHOLE, Score, questions, scores
from hubtools.facts import Fact, Source, Spread, Status, Subject

REPEATS_SCHEMA = "hubtools.repeats/1"


def run_facts(run: Run, *, path_in_facts: str, member: str = "", weights: str = "") -> list[Fact]:
    """The facts of one run.

    Args:
        run: as `read_run` gave it.
        path_in_facts: where a reader of the facts finds `run.json`.
        member: the subject, where it is called otherwise than in the run.
        weights: likewise, its digest.
    """
    make = _Facts(run, path_in_facts, run.sha256, member, weights)
    figures = [make.score(_recorded(score, run), _pointer(score)) for score in scores([run])]
    return [*figures, *make.counts([run])]


def repeats_record(runs: Sequence[Run], paths: Sequence[str]) -> dict[str, Any]:
    """The record that several runs of the same weights under one protocol share.

    It names each run with its digest, so that whoever has the runs can make it again. Facts about
    repeats have it as their source.

    Args:
        runs: two or more.
        paths: where a reader finds the `run.json` of each.

    Raises:
        CheckError: HT445 the runs are not repeats of each other, or one is there twice.
    """
    first = runs[0]
    what = {"weights", "protocol_id", "status"}
    differing = sorted(n for n in what if len({getattr(run, n) for run in runs}) > 1)
    differing += ["the questions"] if len({questions(run) for run in runs}) > 1 else []
    lone = len({run.sha256 for run in standing(runs)}) < max(2, len(runs))
    if differing or lone or not all(same_checkpoint(first, run) for run in runs):
        why = f"they differ in {', '.join(differing)}" if differing else "it is one and the same"
        if not (differing or lone):
            why = "their weights or other files of the model are not known to be the same"
        raise CheckError(
            "HT445",
            f"the {len(runs)} runs of {first.suite} are not repeats of each other: {why}",
            where=str(first.path),
            detail=("No mean was computed.",),
            next="name runs of one checkpoint that differ in the seed: "
            "hubtools evaluate MODEL --seed N",
        )
    told = [
        {"path": path, "sha256": run.sha256, "seed": run.seed}
        for path, run in zip(paths, runs, strict=True)
    ]
    figures: dict[str, dict[str, Any]] = {}
    for score in scores(runs):
        figures.setdefault(score.part or "all", {})[score.metric] = score.to_json()
    same = {"suite": first.suite, "protocol_id": first.protocol_id, "weights": first.weights}
    counts = {
        "failures": sum(run.failures for run in runs),
        "cut_off": sum(run.cut_off for run in runs),
        "tokens": {"completion": sum(run.tokens.get("completion", 0) for run in runs)},
        "tiers": dict(sum((Counter(run.tiers) for run in runs), Counter[str]())),
    }
    return {"schema": REPEATS_SCHEMA, **same, "runs": told, "figures": figures, **counts}


def repeated_facts(
    runs: Sequence[Run],
    *,
    path_in_facts: str,
    sha256: str,
    member: str = "",
    weights: str = "",
) -> list[Fact]:
    """The facts of several runs that are repeats: means with their SD, of two both values, of equal
    ones the figure of one.

    Args:
        runs: as given to `repeats_record`.
        path_in_facts: where a reader finds that record.
        sha256: of its file.
        member: the subject, where it is called otherwise than in the runs.
        weights: likewise, its digest.
    """
    make = _Facts(runs[0], path_in_facts, sha256, member, weights)
    found = [
        make.score(score, f"/figures/{_escaped(score.part or 'all')}/{score.metric}")
        for score in scores(runs)
    ]
    return [*found, *make.counts(runs)]


class _Facts:
    """Makes facts of one subject and source."""

    def __init__(self, run: Run, path: str, sha256: str, member: str, weights: str) -> None:
        self._run, self._path, self._sha256 = run, path, sha256
        self._subject = Subject(member or run.member, weights=weights or run.weights)

    def __call__(self, name: str, value: Any, unit: str, pointer: str, **more: Any) -> Fact:
        run, quote = self._run, ""
        if run.status != "measured":
            by = f"{run.harness.get('name', 'unknown')} {run.harness.get('version', '')}".strip()
            quote = f"{by}: {name} = {value}"
        return Fact(
            id=f"eval.{run.suite}.{name}",
            value=value,
            status=cast(Status, run.status),
            source=Source(self._path, self._sha256, pointer, quote),
            subject=self._subject,
            unit=unit,
            protocol=run.protocol_id,
            date=run.date,
            **more,
        )

    def counts(self, runs: Sequence[Run]) -> list[Fact]:
        """What was counted in one run, or in all of its repeats."""
        n = sum(run.n for run in runs)
        failed, cut = sum(run.failures for run in runs), sum(run.cut_off for run in runs)
        found = [
            self("failures", failed, "samples", "/failures", n=failed + n),
            self("cut_off", cut, "answers", "/cut_off", n=n),
        ]
        if written := sum(run.tokens.get("completion", 0) for run in runs):
            found.append(self("tokens", written, "tokens", "/tokens/completion", n=n))
        tiers = sum((Counter(run.tiers) for run in runs), Counter[str]())
        return found + [
            self(f"tiers.{tier}", count, "answers", f"/tiers/{_escaped(tier)}", n=n)
            for tier, count in tiers.items()
        ]

    def score(self, score: Score, pointer: str) -> Fact:
        """A figure with its spread: SD of repeats that differ, else the interval."""
        name = ".".join(part for part in (score.part, score.metric) if part)
        more: dict[str, Any] = {"n": score.n or None, "k": score.k, "repeats": score.runs}
        value: Any = score.value
        if score.interval is not None:
            sure = score.interval
            more["spread"] = Spread("ci", sure.low, sure.high, sure.method, sure.n, sure.level)
        if score.repeats is not None:
            more |= {"n": score.n // score.repeats.k or None, "k": None, "repeats": score.repeats.k}
            value, more["spread"] = _repeated(score, more.get("spread"))
            pointer += "/repeats/values" if isinstance(value, list) else "/repeats/mean"
        elif score.runs > 1:
            pointer += "/value"
        return self(name, value, "proportion", pointer, **more)


def _repeated(score: Score, interval: Spread | None) -> tuple[Any, Spread | None]:
    """Value and spread of repeats: both of two, the mean with its SD of more; equal ones say
    nothing about chance, so the interval over items stays.
    """
    found = score.repeats
    assert found is not None
    if found.sd == 0:
        return found.mean, interval
    if found.k == 2:
        return list(found.values), None
    low, high = found.mean - found.sd, found.mean + found.sd
    return found.mean, Spread("sd", low, high, f"SD of {found.k} runs with other seeds", found.k)


def _recorded(score: Score, run: Run) -> Score:
    """The figure to the last digit as it stands in the record."""
    of: Mapping[str, Any] = run.metrics
    if score.part:
        of = run.macro if score.part == MACRO else run.categories[score.part]["metrics"]
    return replace(score, value=of[score.metric]["value"])


def _pointer(score: Score) -> str:
    if score.part == WHOLE:
        return f"/metrics/{_escaped(score.metric)}/value"
    if score.part == MACRO:
        return f"/macro/{_escaped(score.metric)}/value"
    return f"/categories/{_escaped(score.part)}/metrics/{_escaped(score.metric)}/value"


def _escaped(key: str) -> str:
    """A key in a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
