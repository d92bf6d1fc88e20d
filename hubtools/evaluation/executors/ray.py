"""Jobs on a Ray cluster: one task per checkpoint; a task whose worker dies is done again.

The workers need this package, and the folders of models and runs at the same paths: a shared file
system, as clusters have. Ray talks on stdout, so it lives in a child process.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hubtools.children import rebuilt_error, run_child
from hubtools.errors import HubtoolsError
from hubtools.evaluation.executors.job import Job
from hubtools.progress import Progress, silent


def run_on_ray(
    jobs: Sequence[Job],
    *,
    log: Path,
    address: str = "",
    gpus: float = 0,
    workers: int | None = None,
    progress: Progress = silent,
) -> list[list[dict[str, Any]] | HubtoolsError]:
    """Each job's records, or why it could not be done, in the order of `jobs`.

    Args:
        jobs: what to do.
        log: file for Ray's story.
        address: of a running cluster; empty starts one here, for the length of this call.
        gpus: that one job needs.
        workers: jobs at a time on a cluster that is started here; None: one per core.
        progress: told how many jobs are finished.

    Raises:
        EnvironmentFailure: HT476 Ray is not installed, HT477 no cluster answers.
    """
    told = run_child(
        "hubtools.evaluation.executors.ray_child",
        {
            "jobs": [job.to_json() for job in jobs],
            "address": address,
            "gpus": gpus,
            "workers": workers,
        },
        log=log,
        what="evaluating on Ray",
        progress=progress,
    )
    return [
        rebuilt_error(entry["error"]) if "error" in entry else entry["records"]
        for entry in told["results"]
    ]
