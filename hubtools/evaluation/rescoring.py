"""Scores the responses of a finished run again, with other metrics and without the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval_harness import runner
from eval_harness.errors import HarnessError
from eval_harness.record import HARNESS, RUN
from eval_harness.suite import load_suite
from eval_harness.suite_model import Suite
from hubtools.errors import CheckError
from hubtools.evaluation.failures import bridged
from hubtools.evaluation.protocol import protocol_again, protocol_id
from hubtools.evaluation.records import read_run
from hubtools.evaluation.runs import finished, fresh, record_of
from hubtools.files import disk_error, locked, write_json
from hubtools.progress import Progress, silent

_FIGURES = (
    *("schema", "date", "suite_digest", "protocol_id", "samples_sha256", "missing", "status"),
    *("title", "description", "responses_sha256"),
)
_ABOUT = (
    *("protocol", "plan_id", "weights", "model_files", "endpoint", "member", "requested", "seed"),
    *("suite", "rescored"),
)


def rescore(run: Path, *, suite: str | None = None, progress: Progress = silent) -> dict[str, Any]:
    """Score a run again; the result is a run of its own under its own protocol.

    Args:
        run: folder of a finished run, or its `run.json`.
        suite: name or path of a suite that asks the same with other metrics; None: the suite of
            the run's name as it is now.
        progress: told when it is done.

    Returns:
        The record, and under `path` the file that holds it. Where the same was done before, that
        run's.

    Raises:
        UsageError: HT401, HT402.
        CheckError: HT407 the suite asks something else, HT410 the run is damaged, HT420 its
            responses are not there.
        EnvironmentFailure: HT901 disk, HT903 another process is at work there.
    """
    source = run.parent if run.name == RUN else run
    read = read_run(source)
    if read.harness["name"] != HARNESS["name"]:
        raise CheckError(
            "HT420",
            f"{read.harness['name']} asked, and its responses cannot be scored again here",
            where=str(source),
            next="evaluate again: hubtools evaluate MODEL --again",
        )
    record = json.loads((source / RUN).read_bytes())
    try:
        wanted = load_suite(suite or read.suite, accept_unpinned=True).as_asked(record["suite"])
    except HarnessError as error:
        raise bridged(error) from error
    protocol = protocol_again(wanted.identity(), record["protocol"])
    kept = {key: value for key, value in record.items() if key not in _FIGURES}
    kept |= {"title": wanted.title, "description": wanted.description, "rescored": source.name}
    kept |= {"protocol": protocol, "plan_id": protocol_id(protocol)}
    runs = source.parent
    with locked(runs / ".lock", f"the folder of runs {runs.name}"):
        folder = finished(runs, kept)
        if folder is None:
            folder = fresh(runs)
            _score(wanted, source, folder, kept)
    progress(f"rescore {read.suite}", read.samples, read.samples, "samples")
    return record_of(folder)


def _score(suite: Suite, source: Path, folder: Path, record: Mapping[str, Any]) -> None:
    try:
        runner.rescore(suite, source, folder, record)
        about = {**record, "suite": suite.identity()}
        write_json(folder / runner.ABOUT, {key: about[key] for key in _ABOUT if key in about})
    except HarnessError as error:
        raise bridged(error) from error
    except OSError as error:
        raise disk_error(error, folder) from error
