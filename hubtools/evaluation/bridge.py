"""From a cell to the record of its run: the harness works in a child process, we keep order.

Runs are append-only: `<out>/<suite>/<n>/`. A finished run of the same files under the same
protocol and seed is found again; an unfinished one is gone on with.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from eval_harness.journal import NAME as RESPONSES
from hubtools.children import run_child
from hubtools.errors import CheckError
from hubtools.evaluation import foreign
from hubtools.evaluation.identity import claim, model_weights
from hubtools.evaluation.planning import (
    chat_template_digest,
    concurrency,
    protocol_for,
    suite_of,
    wants,
)
from hubtools.evaluation.preflight import free_memory, preflight, require
from hubtools.evaluation.rescoring import rescore
from hubtools.evaluation.runs import finished, fresh, record_of, told, unfinished
from hubtools.evaluation.serving import Server, require_servable, serving
from hubtools.evaluation.spec import Cell
from hubtools.files import disk_error, locked
from hubtools.progress import Progress, silent

__all__ = [
    "chat_template_digest",
    "evaluate",
    "find_run",
    "foresee",
    "model_weights",
    "planned_protocol",
    "rescore",
]

OMP = "OMP_WAIT_POLICY"
"""Threads that spin at every barrier are three times slower where others use the machine too."""

_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def planned_protocol(cell: Cell) -> dict[str, Any]:
    """The protocol that `evaluate` would use, without running or importing an engine.

    Raises:
        UsageError: HT401 unknown suite, HT402 a suite with a mistake, HT413 unknown dtype.
        EnvironmentFailure: HT428 no retriever, HT435 no engine.
    """
    other = foreign.harness_of(cell.suite)
    if other is None:
        return protocol_for(cell, suite_of(cell))
    require_servable(cell.target, cell.engine)
    return other.planned(cell)


def find_run(cell: Cell) -> dict[str, Any] | None:
    """The record of the finished run of this cell, with its `path`; nothing is started.

    Raises:
        HubtoolsError: as for `planned_protocol`.
    """
    folder = finished(_runs(cell), claim(cell, planned_protocol(cell)))
    return None if folder is None else record_of(folder)


def foresee(cell: Cell) -> None:
    """Stop for what would go wrong, before an engine is started; warnings come with the run.

    Raises:
        CheckError: HT440 to HT442.
    """
    if foreign.harness_of(cell.suite) is None:
        found = preflight(
            cell.target, cell.engine, wants(cell, suite_of(cell)), memory=free_memory()
        )
        require(found)


def evaluate(
    cell: Cell,
    *,
    log: Path,
    server: Server | None = None,
    again: bool = False,
    retry_failed: bool = False,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Run a cell, or find the run that was already made.

    Args:
        cell: what to run; its `out` is the append-only folder of runs.
        log: file for the child's story.
        server: a running one that serves the cell's target; without it one is started, where the
            engine needs one.
        again: add a run though a finished one is there.
        retry_failed: where a finished run has failed samples, add a run that keeps the others and
            asks those again.
        progress: told the number of answered samples and the score so far.

    Returns:
        The run's record, and under `path` the file that holds it.

    Raises:
        UsageError: HT401, HT402, HT413.
        AuthError: HT405 the server refuses the key.
        CheckError: HT403 the model cannot be loaded, HT406 every question failed, HT407, HT440 to
            HT442 what the preflight found.
        EnvironmentFailure: HT404 no server, HT408 a package is missing, HT901 disk, HT903 another
            process is at work there, HT904 the child died; answers so far are kept.
    """
    runs, protocol = _runs(cell), planned_protocol(cell)
    about = claim(cell, protocol)
    with locked(runs / ".lock", f"the folder of runs {runs.name}"), ExitStack() as stack:
        folder = unfinished(runs, about)
        if folder is None:
            found = finished(runs, about)
            if found is not None and not again:
                record = record_of(found)
                if not (retry_failed and record["failures"]):
                    return record
                folder = _continued(found, fresh(runs))
                about["continues"] = found.name
            else:
                folder = fresh(runs)
        elif "continues" in (known := told(folder)):
            about["continues"] = known["continues"]
        if server is None and cell.engine.kind != "transformers":
            foresee(cell)
            server = stack.enter_context(
                serving(cell.target, cell.engine, log=log, progress=progress)
            )
        other = foreign.harness_of(cell.suite)
        ask = other.run if other else _ask
        ask(cell, server, folder, about=about, log=log, progress=progress)
    return record_of(folder)


def _ask(
    cell: Cell,
    server: Server | None,
    folder: Path,
    *,
    about: Mapping[str, Any],
    log: Path,
    progress: Progress,
) -> None:
    """Have the child ask and score."""
    suite = suite_of(cell)
    length = None if server is None else server.max_model_len
    findings = preflight(
        cell.target,
        cell.engine,
        wants(cell, suite),
        max_model_len=length,
        memory=free_memory(),
    )
    require(findings)
    job = {
        "cell": cell.to_json(),
        "server": None if server is None else _told(server),
        "concurrency": concurrency(cell.engine),
        "folder": str(folder),
        "about": about,
        "findings": [finding.to_json() for finding in findings],
    }
    try:
        run_child(
            "hubtools.evaluation.worker",
            job,
            log=log,
            what=f"evaluating {cell.target.member} on {suite.id}",
            progress=progress,
            env=_ENVIRONMENT | ({} if OMP in os.environ else {OMP: "PASSIVE"}),
        )
    except CheckError as error:
        if error.id == "HT403":  # the child does not know where its story goes
            error.next = f"less {shlex.quote(str(log))}"
        raise


def _told(server: Server) -> dict[str, Any]:
    return {
        "url": server.url,
        "served_name": server.served_name,
        "describe": dict(server.describe),
    }


def _runs(cell: Cell) -> Path:
    """Folder of the runs of the cell's suite."""
    return cell.out / (foreign.slug(cell.suite) or suite_of(cell).id)


def _continued(found: Path, folder: Path) -> Path:
    """A new run that begins with the responses of a finished one."""
    try:
        folder.mkdir()
        if (found / RESPONSES).is_file():
            shutil.copyfile(found / RESPONSES, folder / RESPONSES)
    except OSError as error:
        raise disk_error(error, folder) from error
    return folder
