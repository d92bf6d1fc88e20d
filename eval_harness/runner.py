"""Asks a suite's questions, keeps every response as it comes, and scores when all are there.

A run folder holds `about.json` (whose it is), `responses.jsonl.zst` (which only grows) and, once
finished, `samples.jsonl` and `run.json`. A killed run goes on with the samples that are missing.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eval_harness.asking import Asker
from eval_harness.chat import Agent, Backend
from eval_harness.errors import HarnessError
from eval_harness.journal import NAME, Journal
from eval_harness.live import Live, Progress
from eval_harness.record import HARNESS, write_json, write_run
from eval_harness.scoring import samples_of
from eval_harness.suite_model import Suite

ABOUT = "about.json"


def run(
    suite: Suite,
    backend: Backend,
    agent: Agent,
    folder: Path,
    *,
    seed: int,
    about: Mapping[str, Any],
    progress: Progress,
    retry_failed: bool = False,
    same_server: bool = False,
    finish: Callable[[int], Mapping[str, Any]] = lambda damaged: {},
) -> dict[str, Any]:
    """Run, or go on with, one evaluation in `folder`.

    What failed for want of a server or retriever is asked again when an unfinished run goes on;
    so is everything where every sample failed. What is damaged in the responses is passed over and
    asked again, and the record counts it under `damaged_responses`.

    Args:
        suite: what to ask, with its options.
        backend: whom to ask.
        agent: how.
        folder: of the run.
        seed: of the run. A sample's seed is made of it, the item's id and the trial.
        about: the caller's description of this run (JSON). It is copied into the record, and a
            folder that was begun with another one is refused.
        progress: told the number of finished samples and the score so far.
        retry_failed: ask again whatever failed, for any reason.
        same_server: stop where a run goes on and the server names another model or fingerprint
            than it did for all answers before.
        finish: called when all was asked, with the number of damaged places that were passed over;
            what it returns goes into the record.

    Returns:
        The content of `run.json`.

    Raises:
        HarnessError: `other_run`, `nothing_scored`, or the backend's own; answers are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    about = {**about, "suite": suite.identity(), "seed": seed}
    _claim(folder / ABOUT, about)
    with opened(suite, folder) as journal:
        live = Live(suite, progress)
        served = _recover(journal, live, retry_failed)
        known = served if same_server else {}
        asker = Asker(suite, backend, agent, seed, journal, live, known)
        asyncio.run(asker.ask_all())
        digest = journal.sync()
        record = {
            "harness": HARNESS,
            "title": suite.title,
            "description": suite.description,
            **about,
            "engine": backend.describe(),
            **finish(journal.damaged),
            "responses_sha256": digest,
            **({"damaged_responses": journal.damaged} if journal.damaged else {}),
        }
        return scored(suite, journal, folder, record)


def rescore(suite: Suite, source: Path, folder: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """Score the responses of a finished run again, without a model.

    Args:
        suite: asks what the run asked; its metrics may be others.
        source: folder of the finished run.
        folder: a new one for the new run.
        record: of the finished run, with what is to be changed of it.

    Raises:
        HarnessError: `other_run` when the suite asks something else, `no_responses` when they are
            not all there, `nothing_scored`.
    """
    before, now = dict(record["suite"]), suite.identity()
    asked = [key for key in before.keys() | now.keys() if key not in ("metrics", "average")]
    changed = sorted(key for key in asked if before.get(key) != now.get(key))
    if changed:
        raise HarnessError(
            "other_run",
            f"the suite asks something else than the run did: {', '.join(changed)}",
            where=str(source),
            next="name the suite of the run with other metrics, or evaluate again",
        )
    if not (source / NAME).is_file():
        raise _no_responses(source)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / NAME, folder / NAME)
    with opened(suite, folder) as journal:
        for _ in journal.recover():
            pass
        if any(place not in journal for place in range(suite.size)):
            raise _no_responses(source)
        return scored(suite, journal, folder, {**record, "suite": now})


def scored(
    suite: Suite, journal: Journal, folder: Path, record: Mapping[str, Any]
) -> dict[str, Any]:
    """The scoring pass: from the responses of all samples to the record."""
    return write_run(
        folder,
        samples_of(suite, journal),
        record,
        metrics=[metric.name for metric in suite.metrics],
        average=suite.average,
    )


def opened(suite: Suite, folder: Path) -> Journal:
    """The journal of a run of `suite`."""
    return Journal(folder / NAME, [item.id for item in suite.items], suite.trials)


def _recover(journal: Journal, live: Live, retry_failed: bool) -> dict[str, set[str]]:
    """What servers said they are, `model` and `fingerprint`, in the answers that are there."""
    failed: dict[int, str] = {}
    served: dict[str, set[str]] = {}
    for place, entry in journal.recover():
        failed.pop(place, None)
        if entry["outcome"]["failure"]:
            failed[place] = entry["outcome"]["failure_kind"]
        live.add(place, entry["outcome"])
        for side, name in (entry["outcome"].get("served") or {}).items():
            served.setdefault(side, set()).update({name} - {""})
    every = len(failed) == live.done
    for place, kind in failed.items():
        if every or retry_failed or kind == "infrastructure":
            journal.forget(place)
            live.forget(place)
    return served


def _claim(path: Path, about: Mapping[str, Any]) -> None:
    if not path.exists():
        write_json(path, about)
    elif json.loads(path.read_bytes()) != json.loads(json.dumps(about)):
        raise HarnessError(
            "other_run",
            "the folder holds the answers of another run",
            where=str(path),
            next="choose another output folder; nothing was written",
        )


def _no_responses(folder: Path) -> HarnessError:
    return HarnessError(
        "no_responses",
        "the responses of the run are not there, so it cannot be scored again",
        where=str(folder),
        next="evaluate again: hubtools evaluate MODEL --again",
    )
