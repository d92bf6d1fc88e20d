"""Child process that talks with Ray: starts or joins a cluster, and collects what tasks return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubtools.children import child_main
from hubtools.errors import EnvironmentFailure, HubtoolsError
from hubtools.evaluation.executors.job import job_from_json, run_job
from hubtools.progress import Progress

RETRIES = 3


def work(job: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """`results`: for each job its records, or its error as JSON."""
    ray = _joined(job["address"], job["workers"])
    try:
        task = ray.remote(num_cpus=1, num_gpus=job["gpus"], max_retries=RETRIES)(_run)
        pending = {task.remote(entry): number for number, entry in enumerate(job["jobs"])}
        results: dict[int, dict[str, Any]] = {}
        waiting = list(pending)
        while waiting:
            progress("evaluate on Ray", len(results), len(pending), "jobs")
            ready, waiting = ray.wait(waiting)
            for reference in ready:
                results[pending[reference]] = _result(ray, reference)
        progress("evaluate on Ray", len(results), len(pending), "jobs")
        return {"results": [results[number] for number in range(len(pending))]}
    finally:
        ray.shutdown()


def _joined(address: str, workers: int | None) -> Any:
    try:
        import ray
    except ImportError as error:
        raise EnvironmentFailure(
            "HT476",
            "Ray is not installed",
            next="pip install 'hf-hubtools[ray]', or leave out --executor ray",
        ) from error
    here: dict[str, Any] = {}
    if not address:
        here = {"num_cpus": workers, "include_dashboard": False}
    try:
        ray.init(address=address or "local", log_to_driver=False, **here)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise EnvironmentFailure(
            "HT477",
            f"no Ray cluster at {address or 'this machine'}: {str(error).splitlines()[0]}",
            detail=("Nothing was evaluated.",),
            next="look at it with: ray status",
        ) from error
    return ray


def _run(job: dict[str, Any]) -> dict[str, Any]:
    """The task; errors travel as JSON, since exceptions lose their class on the way."""
    try:
        return {"records": run_job(job_from_json(job), verify=True)}
    except HubtoolsError as error:
        return {"error": error.to_json()}


def _result(ray: Any, reference: Any) -> dict[str, Any]:
    try:
        told: dict[str, Any] = ray.get(reference)
        return told
    except ray.exceptions.RayError as error:
        died = EnvironmentFailure(
            "HT478",
            f"a Ray worker died {RETRIES + 1} times: {str(error).strip().splitlines()[0]}",
            detail=("Answers that were already given are kept.",),
            next="look at the memory of the workers, then run the same command again",
        )
        return {"error": died.to_json()}


if __name__ == "__main__":
    child_main(work)
