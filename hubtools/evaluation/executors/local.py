"""Jobs one after the other in this process; each engine is a child process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hubtools.errors import HubtoolsError
from hubtools.evaluation.executors.job import Job, run_job
from hubtools.progress import Progress, silent


def run_here(
    jobs: Sequence[Job], *, progress: Progress = silent
) -> list[list[dict[str, Any]] | HubtoolsError]:
    """Each job's records, or why it could not be done; one that fails does not stop the others."""
    results: list[list[dict[str, Any]] | HubtoolsError] = []
    for job in jobs:
        try:
            results.append(run_job(job, verify=True, progress=progress))
        except HubtoolsError as error:
            results.append(error)
    return results
