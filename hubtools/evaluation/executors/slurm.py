"""Jobs as a SLURM array: one job file each, and a script that `sbatch` takes.

The script's folder is named by its jobs, so that the same request writes the same files. A task
that was preempted or killed goes on where it stopped when the array is submitted again.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hubtools.digests import sha256_json
from hubtools.errors import UsageError
from hubtools.evaluation.executors.checking import absolute_cell, require_no_secrets
from hubtools.evaluation.executors.job import Job, write_job
from hubtools.files import write_atomic

SCRIPT = "array.sbatch"


def write_array(jobs: Sequence[Job], folder: Path, options: Sequence[str] = ()) -> Path:
    """Write `<folder>/<digest>/jobs/N.json` and `array.sbatch` beside them.

    Args:
        jobs: one array task each.
        folder: on a file system that the nodes share.
        options: further options of sbatch, for example `--gres=gpu:1`.

    Returns:
        The script, for `sbatch`.

    Raises:
        UsageError: HT479 an option that is not one line beginning with a dash, HT484 a password.
    """
    for option in options:
        if not option.startswith("-") or not option.isprintable():
            raise UsageError(
                "HT479",
                f"not an option of sbatch: {option!r}",
                detail=("Nothing was written.",),
                next="write it as sbatch takes it, for example --slurm-option=--gres=gpu:1",
            )
    jobs = [replace(job, cells=tuple(map(absolute_cell, job.cells))) for job in jobs]
    for cell in (cell for job in jobs for cell in job.cells):
        require_no_secrets(cell)
    folder = folder.resolve() / sha256_json([job.to_json() for job in jobs])[:12]
    for number, job in enumerate(jobs):
        write_job(job, folder / "jobs" / f"{number}.json")
    lines = [
        "#!/bin/bash",
        "#SBATCH --job-name=hubtools-evaluate",
        f"#SBATCH --array=0-{len(jobs) - 1}",
        f'#SBATCH --output="{folder}/slurm-%A_%a.log"',
        "#SBATCH --requeue",
        *(f"#SBATCH {option}" for option in options),
        "set -eu",
        f"exec {shlex.quote(sys.executable)} -m hubtools evaluate cell "
        f'{shlex.quote(str(folder / "jobs"))}/"$SLURM_ARRAY_TASK_ID".json',
    ]
    script = folder / SCRIPT
    write_atomic(script, ("\n".join(lines) + "\n").encode())
    return script
