"""The child process that merges: it follows recipes, file by file, and tells what became of each.

It knows nothing of adapters and plans, so that it starts fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hubtools.checkpoint.journal import Journal
from hubtools.checkpoint.merging.engine import Engine
from hubtools.checkpoint.merging.product import gemm_of
from hubtools.checkpoint.merging.wire import files_from_json, stored_from_json
from hubtools.checkpoint.merging.written import Written
from hubtools.checkpoint.stamps import Stamp, stamps_of
from hubtools.children import child_main
from hubtools.errors import EnvironmentFailure
from hubtools.files import disk_error, sync_directory
from hubtools.progress import Progress


def work(job: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Write the files of a layout.

    Args:
        job: `files` (`wire.files_to_json`), `base` {name: stored tensor that an output replaces},
            `home` (the base's files), `engine`, `stamps` of all inputs, `folder` for the new files,
            `journal` and `identity` of the job, `bytes` of all tensors, `label`.
        progress: told the bytes written so far.

    Returns:
        `written`: file name → `Written.to_json`.
    """
    files = files_from_json(job["files"])
    _require_unchanged(job["stamps"])
    engine = Engine(
        {name: stored_from_json(stored) for name, stored in job["base"].items()},
        frozenset(map(Path, job["home"])),
        gemm_of(job["engine"]),
        total=job["bytes"],
        label=job["label"],
        progress=progress,
    )
    folder = Path(job["folder"])
    journal = Journal(Path(job["journal"]), job["identity"])
    written: dict[str, Written] = {}
    for file in files:
        known = finished(journal, folder, file.name)
        if known is not None:
            engine.skip(file)
        else:
            partial = folder / f".{file.name}.partial"
            known = engine.write(file, partial)
            _rename(partial, folder / file.name)
            journal.add(file.name, known.to_json())
        written[file.name] = known
    _require_unchanged(job["stamps"])
    return {"written": {name: file.to_json() for name, file in written.items()}}


def finished(journal: Journal, folder: Path, name: str) -> Written | None:
    """What is known of `folder/name`, when its bytes still have the digest they had."""
    known = journal.kept(folder, name)
    try:
        return None if known is None else Written.from_json(known)
    except (ValueError, LookupError, TypeError):
        return None


def _require_unchanged(stamps: Iterable[Stamp | list[str | int]]) -> None:
    """Refuse a result made from files that changed since their stamps were taken."""
    for stamp in stamps:
        file = Path(str(stamp[0]))
        try:
            same = [tuple(stamp)] == stamps_of([file])
        except OSError:  # gone, or no longer ours to read
            same = False
        if not same:
            raise EnvironmentFailure(
                "HT155",
                f"{file.name} changed while it was merged",
                where=str(file),
                detail=("The result would be of no single input; it was removed.",),
                next="wait until nothing writes there any more, then run the same command again",
            )


def _rename(partial: Path, target: Path) -> None:
    try:
        partial.rename(target)
        sync_directory(target.parent)
    except OSError as error:
        raise disk_error(error, target) from error


if __name__ == "__main__":
    child_main(work)
