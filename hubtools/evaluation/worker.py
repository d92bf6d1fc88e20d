"""Child process of an evaluation: loads the model (or reaches the server) and runs the suite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval_harness.backend import Backend
from eval_harness.errors import HarnessError
from eval_harness.runner import run
from eval_harness.suite import load_suite
from hubtools.children import child_main
from hubtools.evaluation.failures import bridged
from hubtools.files import disk_error
from hubtools.progress import Progress


def work(job: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Run the job that `bridge.evaluate` wrote down."""
    out = Path(job["out"])
    try:
        suite = load_suite(job["suite"])
        progress(f"evaluate {suite.id}", 0, len(suite.items), "samples")
        run(
            suite,
            _backend(job),
            out,
            seed=job["seed"],
            about=job["about"],
            progress=progress,
        )
    except HarnessError as error:
        raise bridged(error) from error
    except OSError as error:
        raise disk_error(error, out) from error
    return {}


def _backend(job: Mapping[str, Any]) -> Backend:
    if job["endpoint"]:
        from eval_harness.backends.openai import OpenAIBackend

        return OpenAIBackend(
            job["endpoint"],
            job["served_name"],
            api_key_env=job["api_key_env"],
            batch_size=job["batch_size"],
        )
    from eval_harness.backends.transformers import TransformersBackend

    adapter = None if job["adapter"] is None else Path(job["adapter"])
    return TransformersBackend(
        Path(job["model"]), adapter, job["dtype"], job["device"], job["batch_size"]
    )


if __name__ == "__main__":
    child_main(work)
