"""Reads a run back and believes nothing: every figure is computed again from the samples."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_harness.datasets import misnamed
from eval_harness.errors import HarnessError
from eval_harness.record import HARNESS, RUN, SAMPLES, SCHEMA
from eval_harness.scoring import Tally, score
from eval_harness.suite import load_suite, suite_file, suite_names, suite_table
from eval_harness.suite_model import Suite
from hubtools.digests import sha256_bytes, sha256_json
from hubtools.errors import CheckError
from hubtools.evaluation.grid import Grid, grids
from hubtools.evaluation.protocol import protocol_id
from hubtools.evaluation.record_checks import check_answer, check_claim, check_types, journal_of
from hubtools.evaluation.statistics import Interval, interval

__all__ = ["RUN", "SAMPLES", "Run", "read_run"]

_DERIVED = ("path", "sha256", "suite", "suite_identity", "grids", "requested", "model_files")
_DAMAGE = (
    *(ArithmeticError, AttributeError, HarnessError, IndexError, KeyError, RecursionError),
    *(TypeError, ValueError),
)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A finished run whose figures agree with its samples.

    Args:
        path: of `run.json`; `sha256` is its digest.
        suite: its id; `suite_identity` is all that decides what was asked and scored.
        plan_id: of the protocol before the run; `protocol_id` of the one as it was run.
        requested: the model's name that a server was asked for.
        status: `measured`, `external` (by another harness), or `reported` (figures alone).
        missing: fields that a foreign harness did not tell.
        served: `model` and `fingerprint` as servers reported them, with numbers of answers.
        items, trials, samples: questions, answers to each, and all that were asked for.
        n: scored samples; `failures` got no answer, by kind in `failure_kinds`.
        unextracted: answers in which no metric found anything.
        cut_off: answers that ended because tokens, turns or context were used up.
        metrics: name to value, n, items, and k where every score is 0 or 1.
        categories: name to n, items, failures and metrics.
        macro: metric to the mean over categories, where the suite asks for it.
        tiers: rung of a cascade to number of answers.
        grids: metric to its scores by item and trial.
        model_files: digest of configuration, tokenizer and adapter settings; empty when unknown.
    """

    path: Path
    sha256: str
    harness: Mapping[str, str]
    suite: str
    suite_identity: Mapping[str, Any]
    title: str
    description: str
    protocol: Mapping[str, Any]
    protocol_id: str
    plan_id: str
    member: str
    weights: str
    requested: str
    seed: int
    date: str
    status: str
    missing: tuple[str, ...]
    engine: Mapping[str, Any]
    served: Mapping[str, Mapping[str, int]]
    items: int
    trials: int
    samples: int
    n: int
    failures: int
    failure_kinds: Mapping[str, int]
    unextracted: int
    cut_off: int
    metrics: Mapping[str, Mapping[str, Any]]
    categories: Mapping[str, Mapping[str, Any]]
    macro: Mapping[str, Mapping[str, Any]]
    tiers: Mapping[str, int]
    tokens: Mapping[str, int]
    grids: Mapping[str, Grid]
    model_files: str = ""

    def interval(self, metric: str) -> Interval:
        """95 % interval of a metric, by the method that its scores ask for."""
        return interval(self.grids[metric])

    def iter_samples(self) -> Iterator[dict[str, Any]]:
        """The samples, one at a time, from their file."""
        with self.path.with_name(SAMPLES).open("rb") as stream:
            yield from map(json.loads, stream)


def read_run(path: Path) -> Run:
    """Read `run.json` (or the folder that holds it) with the samples beside it.

    Raises:
        CheckError: HT410 a file is missing or damaged, or a figure is not what the samples give.
    """
    path = path / RUN if path.is_dir() else path
    try:
        raw = path.read_bytes()
        record = json.loads(raw)
    except (OSError, RecursionError, ValueError) as error:
        raise _wrong(f"the run cannot be read: {error}", path) from error
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise _wrong(f"not a run record ({SCHEMA})", path)
    try:
        check_types(record)
        found = _checked(record, path)
        check_claim(record, path.parent)
        names = Run.__dataclass_fields__.keys() - _DERIVED
        fields = {name: record[name] for name in names}
        return Run(
            path=path,
            sha256=sha256_bytes(raw),
            suite=str(record["suite"]["id"]),
            suite_identity=record["suite"],
            requested=str(record.get("requested", "")),
            grids=found,
            model_files=str(record.get("model_files", "")),
            **{**fields, "missing": tuple(record["missing"])},
        )
    except OSError as error:
        raise _wrong(f"the run cannot be read: {error}", path) from error
    except _DAMAGE as error:
        what = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise _wrong(f"the run record is damaged: {what}", path) from error


def _checked(record: Mapping[str, Any], path: Path) -> dict[str, Grid]:
    """Scores by metric, once every figure of the record is known to follow from the samples."""
    suite, protocol = record["suite"], record["protocol"]
    if record["status"] == "reported" and record["samples_sha256"] is None:
        return {}  # figures that somebody wrote down, without the answers
    own = record["harness"]["name"] == HARNESS["name"]
    told = journal_of(record, path.parent) if own else None
    names = [metric["name"] for metric in suite["metrics"]] if own else list(record["metrics"])
    average = suite["average"] if own else "macro" if record["macro"] else "micro"
    tally, digest = Tally(names, average), hashlib.sha256()
    asked = _bundled(suite, path) if own else None

    def checked() -> Iterator[dict[str, Any]]:
        with path.with_name(SAMPLES).open("rb") as stream:
            for line in stream:
                digest.update(line)
                sample = json.loads(line)
                if own:
                    _check_sample(sample, suite, asked, path)
                    check_answer(sample, told)
                tally.add(sample)
                yield sample

    found = grids(checked(), names)
    if asked is not None and next(asked, None) is not None:
        raise _wrong("the samples are not one for each question and trial of the suite", path)
    expected = {
        "samples_sha256": digest.hexdigest(),
        "protocol_id": protocol_id(protocol),
        "suite_digest": sha256_json(suite),
        **tally.figures(),
    }
    for name, value in expected.items():
        if record[name] != value:
            raise _wrong(f"{name} is not what the samples give", path)
    if own:
        if record["categories"].keys() != suite["categories"].keys():
            raise _wrong("the categories are not those of the suite", path)
        if (record["items"], record["samples"]) != (suite["n"], suite["n"] * suite["trials"]):
            raise _wrong("the samples are not one for each question and trial of the suite", path)
        if any(protocol["suite"][key] != suite[key] for key in protocol["suite"]):
            raise _wrong("protocol and suite name different questions", path)
    return found


def _check_sample(
    sample: Mapping[str, Any],
    suite: Mapping[str, Any],
    asked: Iterator[Any] | None,
    path: Path,
) -> None:
    """The scores follow from the text, and the question is the suite's."""
    if sample["failure"]:
        again: Mapping[str, Any] = {"scores": None}
    else:
        again = score(
            suite["metrics"],
            sample["answers"],
            sample["messages"],
            sample["transcript"],
            sample["finish"],
        )
    if any(sample[name] != value for name, value in again.items()):
        raise _wrong(f"the scores of {sample['item']} are not those of its answer", path)
    if asked is not None:
        question = (sample["item"], sample["trial"], sample["messages"], sample["answers"])
        if question != next(asked, None):
            raise _wrong("the samples hold other questions or answers than the suite", path)


def _bundled(identity: Mapping[str, Any], path: Path) -> Iterator[Any] | None:
    """What the suite of this package asks, where it is the one that was run.

    Of a suite whose questions are on the Hub only the digests are looked at.
    """
    if identity["id"] not in suite_names():
        return None
    if found := identity.get("dataset"):
        table, _ = suite_table(suite_file(identity["id"]))
        if why := misnamed(table["dataset"], found):
            raise _wrong(why, path)
        return None
    suite = load_suite(identity["id"]).as_asked(identity)
    return _questions(suite) if suite.identity() == identity else None


def _questions(suite: Suite) -> Iterator[Any]:
    for item, trial in itertools.product(suite.items, range(suite.trials)):
        yield item.id, trial, suite.messages(item), list(item.answers)


def _wrong(message: str, path: Path) -> CheckError:
    return CheckError(
        "HT410",
        message,
        where=str(path),
        detail=("Its figures are not used.",),
        next="evaluate again: hubtools evaluate MODEL --again",
    )
