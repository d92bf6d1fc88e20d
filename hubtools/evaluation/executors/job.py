"""A job: the cells of one checkpoint on one engine, so that a server starts once for all of them.

A job file is the unit that executors hand out. Running one twice does nothing the second time, and
one that was killed goes on where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubtools.errors import UsageError
from hubtools.evaluation.bridge import evaluate, find_run, foresee
from hubtools.evaluation.executors.checking import checked_cell
from hubtools.evaluation.identity import require_weights
from hubtools.evaluation.serving import serving
from hubtools.evaluation.spec import Cell
from hubtools.files import write_json
from hubtools.progress import Progress, silent

SCHEMA = "hubtools.evaluate-job/1"


@dataclass(frozen=True, slots=True)
class Job:
    """Cells that share target and engine.

    Args:
        cells: in the order in which they run.
        again: add runs though finished ones are there.
        retry_failed: ask again what got no answer.
    """

    cells: tuple[Cell, ...]
    again: bool = False
    retry_failed: bool = False

    def to_json(self) -> dict[str, Any]:
        """JSON object; `job_from_json` is the inverse."""
        cells = [cell.to_json() for cell in self.cells]
        more = {"again": self.again, "retry_failed": self.retry_failed}
        return {"schema": SCHEMA, "cells": cells, **more}


def jobs_of(cells: Sequence[Cell], *, again: bool = False, retry_failed: bool = False) -> list[Job]:
    """The cells by checkpoint and engine, in the order in which they come."""
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.target, cell.engine), []).append(cell)
    return [Job(tuple(group), again, retry_failed) for group in groups.values()]


def run_job(
    job: Job, *, log: Path | None = None, verify: bool = False, progress: Progress = silent
) -> list[dict[str, Any]]:
    """The records of all cells; only what is missing is asked, and only then a server is started.

    Args:
        job: what to do.
        log: file for the story of engines; None: `log` in each cell's folder of runs.
        verify: before each cell, see that the folders hold the weights that the job names.
        progress: told the number of answered samples.

    Raises:
        HubtoolsError: the first cell that could not be done; those before it are kept.
    """
    with ExitStack() as stack:
        server = None
        records = []
        for cell in job.cells:
            if verify:
                require_weights(cell.target)
            story = log or cell.out / "log"
            found = None if job.again or job.retry_failed else find_run(cell)
            if found is None and server is None and cell.engine.kind != "transformers":
                foresee(cell)
                server = stack.enter_context(
                    serving(cell.target, cell.engine, log=story, progress=progress)
                )
            records.append(
                found
                or evaluate(
                    cell,
                    log=story,
                    server=server,
                    again=job.again,
                    retry_failed=job.retry_failed,
                    progress=progress,
                )
            )
        return records


def write_job(job: Job, path: Path) -> None:
    """Write a job file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, job.to_json())


def read_job(path: Path) -> Job:
    """Inverse of `write_job`.

    Raises:
        UsageError: HT475 not a job file.
    """
    try:
        return job_from_json(json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            "HT475",
            f"not a job file: {error}",
            where=str(path),
            detail=("Nothing was evaluated.",),
            next="write job files with: hubtools evaluate MODEL --executor slurm",
        ) from error


def job_from_json(data: dict[str, Any]) -> Job:
    """Inverse of `Job.to_json`.

    Raises:
        ValueError, KeyError, TypeError: it is something else.
    """
    if data.get("schema") != SCHEMA:
        raise ValueError(f"its schema is {data.get('schema')!r}, not {SCHEMA}")
    cells = tuple(checked_cell(cell) for cell in data["cells"])
    if not cells:
        raise ValueError("it names no cell")
    again, retry_failed = data["again"], data["retry_failed"]
    if not isinstance(again, bool) or not isinstance(retry_failed, bool):
        raise TypeError("again and retry_failed are true or false")
    return Job(cells, again, retry_failed)
