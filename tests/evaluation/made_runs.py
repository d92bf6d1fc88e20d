"""Runs of a foreign harness whose scores a test chooses, written and read back for real."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval_harness.record import SAMPLES, write_json, write_run
from hubtools.evaluation.protocol import build_protocol, protocol_id
from hubtools.evaluation.records import Run, read_run

Scores = Mapping[str, Sequence[Sequence[float | None]]]
"""Metric to (items × trials); None is a failed sample."""


def made_run(
    folder: Path,
    scores: Scores,
    *,
    member: str = "base",
    weights: str = "",
    seed: int = 0,
    status: str = "measured",
    categories: Sequence[str] = (),
    average: str = "micro",
    tiers: Sequence[int] = (),
    limit: int | None = None,
    missing: Sequence[str] = (),
    **protocol: Any,
) -> Run:
    """A run in a new folder under `folder`."""
    suite: dict[str, Any] = {"id": "made", "version": "1", "items_sha256": "00" * 32}
    if limit is not None:
        suite["sample"] = {"limit": limit, "seed": 0}
    fields = {"backend": "openai", "dtype": "bfloat16", "reducer": f"mean, {average}", **protocol}
    built = build_protocol(suite=suite, **fields)
    record = {
        **{"harness": {"name": "made", "version": "3"}, "suite": suite, "title": "Made up"},
        **{"description": "", "protocol": built, "plan_id": protocol_id(built), "member": member},
        **{"weights": weights or member * 8, "requested": "", "seed": seed, "engine": {}},
        **{"status": status, "missing": list(missing)},
    }
    target = folder / str(len(list(folder.iterdir())))
    target.mkdir()
    write_run(
        target, _samples(scores, categories, tiers), record, metrics=list(scores), average=average
    )
    return read_run(target)


def told_run(folder: Path, k: int, n: int, *, member: str) -> Run:
    """A run of which only k of n is reported, under the protocol of `made_run`."""
    run = made_run(folder, {"em": column(*[1.0] * k, *[0.0] * (n - k))}, member=member)
    record = json.loads(run.path.read_bytes())
    record |= {"status": "reported", "samples_sha256": None}
    write_json(run.path, record)
    run.path.with_name(SAMPLES).unlink()
    return read_run(run.path)


def drawn(seed: int, items: int, trials: int, better: float = 0.0) -> list[list[float | None]]:
    """Right and wrong answers to items of U-shaped difficulty, the same for every seed."""
    easy = np.random.default_rng(1).beta(0.3, 0.6, items)[:, None]
    chance = np.random.default_rng(seed).random((items, trials))
    return (chance < easy + better).astype(float).tolist()


def column(*scores: float | None) -> list[list[float | None]]:
    """One trial an item."""
    return [[score] for score in scores]


def _samples(
    scores: Scores, categories: Sequence[str], tiers: Sequence[int]
) -> list[dict[str, Any]]:
    samples = []
    first = next(iter(scores.values()))
    for place, row in enumerate(first):
        for trial, value in enumerate(row):
            found = {name: of[place][trial] for name, of in scores.items()}
            samples.append(
                {
                    "item": f"q{place}",
                    "category": categories[place] if categories else "all",
                    "trial": trial,
                    "failure": "HTTP 500" if value is None else "",
                    "failure_kind": "infrastructure" if value is None else "",
                    "tier": tiers[place] if tiers else None,
                    "scores": None if value is None else found,
                }
            )
    return samples
