"""Starts the released package on a grid of tasks and trials."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubtools.children import run_child
from hubtools.evaluation.tau2.environment import Installed
from hubtools.evaluation.tau2.record import GRID
from hubtools.progress import Progress

_SCRIPT = Path(__file__).with_name("grid_child.py")


def run_grid(
    installed: Installed, folder: Path, job: Mapping[str, Any], *, log: Path, progress: Progress
) -> None:
    """Have tau2 run what is missing of a grid.

    Raises:
        EnvironmentFailure: HT904.
    """
    run_child(
        _SCRIPT,
        {**job, "folder": str((folder / GRID).resolve())},
        log=log,
        what="τ²-bench airline",
        progress=progress,
        python=str(installed.python),
        env=_environment(),
    )


def _environment() -> dict[str, str]:
    """For the harness: loopback alone, no cache of answers, no `.env`, and none of our keys."""
    secret = [name for name in os.environ if name.endswith(("KEY", "TOKEN", "SECRET", "PASSWORD"))]
    return {
        **dict.fromkeys(secret, ""),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LLM_CACHE_ENABLED": "",
        "PYTHON_DOTENV_DISABLED": "1",
    }
