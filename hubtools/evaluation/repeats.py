"""Which runs stand for themselves: equal answers count once, and a run gone on with not at all."""

from __future__ import annotations

import filecmp
import itertools
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eval_harness.record import SAMPLES
from hubtools.evaluation.runs import told

if TYPE_CHECKING:
    from hubtools.evaluation.records import Run

_ANSWER = ("output", "transcript")
_IDENTITY = ("member", "weights", "plan_id", "seed", "requested")


def standing(runs: Sequence[Run]) -> list[Run]:
    """The runs without those that another of them continues, as `--retry-failed` does."""
    by_folder = {run.path.parent.resolve(): run for run in runs}
    replaced = set()
    for run in runs:
        earlier = told(run.path.parent).get("continues")
        if isinstance(earlier, str):
            place = by_folder.get(run.path.parent.resolve().parent / earlier)
            if place is not None and place is not run and _alike(run, place):
                replaced.add(place.path)
    return [run for run in runs if run.path not in replaced]


def distinct(runs: Sequence[Run]) -> list[Run]:
    """The runs without those that only repeat the answers of another, byte by byte.

    A greedy run under another seed is no second measurement: counted twice, it would narrow the
    interval. Where some answers failed in one of two such runs, the one with more of them stays.
    """
    kept: list[Run] = []
    for run in sorted(runs, key=lambda run: -run.n):
        if not any(_same_answers(run, other) for other in kept):
            kept.append(run)
    return [run for run in runs if run in kept]


def same_checkpoint(a: Run, b: Run) -> bool:
    """Whether two runs are known to be of the same files; unknown ones never are."""
    return bool(a.weights) and (a.weights, a.model_files) == (b.weights, b.model_files)


def same_record(a: Run, b: Run) -> bool:
    """Whether two runs of unknown weights hold the same samples to the byte, as one file that was
    imported twice does.
    """
    one, other = (run.path.with_name(SAMPLES) for run in (a, b))
    if a.weights or b.weights or a.seed != b.seed or not (one.is_file() and other.is_file()):
        return False
    return filecmp.cmp(one, other, shallow=False)


def _alike(a: Run, b: Run) -> bool:
    return all(getattr(a, name) == getattr(b, name) for name in _IDENTITY)


def _same_answers(a: Run, b: Run) -> bool:
    if a.sha256 == b.sha256:
        return True
    if not a.grids or a.grids.keys() != b.grids.keys():
        return False
    for name, grid in a.grids.items():
        one, other = grid.scores, b.grids[name].scores
        if grid.items != b.grids[name].items or one.shape != other.shape:
            return False
        both = np.isfinite(one) & np.isfinite(other)
        if not both.any() or (one[both] != other[both]).any():
            return False
    files = [run.path.with_name(SAMPLES) for run in (a, b)]
    return _equal_texts(*files, a.sha256, b.sha256)


@lru_cache(maxsize=1024)
def _equal_texts(a: Path, b: Path, *_digests: str) -> bool:
    """Whether all that was answered in both is the same to the byte."""
    with a.open("rb") as one, b.open("rb") as other:
        for pair in itertools.zip_longest(one, other):
            if None in pair:
                return False
            mine, theirs = map(json.loads, pair)
            if any(mine.get(name) != theirs.get(name) for name in ("item", "trial")):
                return False
            if mine["scores"] is None or theirs["scores"] is None:
                continue
            if any(_said(mine.get(name)) != _said(theirs.get(name)) for name in _ANSWER):
                return False
    return True


def _said(value: Any) -> Any:
    """What was written, without the ids that a server makes up for calls of tools."""
    if isinstance(value, dict):
        return {key: _said(of) for key, of in value.items() if key not in ("id", "tool_call_id")}
    return [_said(of) for of in value] if isinstance(value, list) else value
