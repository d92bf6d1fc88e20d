"""The embedded Hub as a child process: the job comes on stdin, the URL goes out on stdout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hubtools.children import child_main
from hubtools.localhub.faults import faults_from_json
from hubtools.localhub.server import serve
from hubtools.progress import Progress


def _work(job: dict[str, Any], progress: Progress) -> dict[str, Any]:
    faults = job.pop("faults")
    serve(
        Path(job.pop("root")),
        ready=lambda url: progress(url, 1, 1, "servers"),
        faults=None if faults is None else faults_from_json(faults),
        **job,
    )
    return {}


if __name__ == "__main__":
    child_main(_work)
