"""The child process that merges: it plans again, follows the recipes, and tells what it did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubtools.checkpoint.adapter import open_adapter
from hubtools.checkpoint.merging.engine import Engine
from hubtools.checkpoint.merging.inputs import require_unchanged
from hubtools.checkpoint.merging.journal import Journal
from hubtools.checkpoint.merging.options import MergeOptions
from hubtools.checkpoint.merging.peft_engine import plan_of_raw
from hubtools.checkpoint.merging.plan import MergePlan, plan_merge
from hubtools.checkpoint.merging.product import gemm_of
from hubtools.checkpoint.merging.recipe import Stored
from hubtools.checkpoint.merging.report import merge_report
from hubtools.checkpoint.merging.written import Sums, Written
from hubtools.checkpoint.names import NameMap
from hubtools.checkpoint.shards import INDEX
from hubtools.children import child_main
from hubtools.digests import sha256_bytes, sha256_file
from hubtools.errors import CheckError
from hubtools.files import disk_error, sync_directory, write_atomic
from hubtools.progress import Progress

FILES = "files"
JOURNAL = "journal.json"
CONVERTED = "converted"


def work(job: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Do the job that `merge.merge` describes; its result is that function's result."""
    folder = Path(job["work"])
    plan = _planned(job, folder)
    require_unchanged(plan.adapters, plan.weights, job["stamps"])
    written = _write_weights(plan, folder, job, progress)
    sums = {name: some for file in written.values() for name, some in file.sums.items()}
    _require_change(plan, sums)
    require_unchanged(plan.adapters, plan.weights, job["stamps"])
    files = {name: {"sha256": w.sha256, "size": w.size} for name, w in written.items()}
    small = plan.small_files()
    by = "peft" if plan.merged_by == "peft" else plan.engine
    contents = {name: file.data for name, file in small.items()}
    if plan.layout.index is not None:
        contents[INDEX] = plan.layout.index_bytes or _json(plan.layout.index)
    for name, data in contents.items():
        write_atomic(folder / FILES / name, data)
        files[name] = {"sha256": sha256_bytes(data), "size": len(data)}
    sync_directory(folder / FILES)
    return {
        "files": dict(sorted(files.items())),
        "weights": {name: w.sha256 for name, w in written.items()},
        "report": {
            **plan.to_json(),
            **merge_report(plan.layout, sums, _home(plan), by),
            "adapters": [{"weights": sha256_file(a.weights)} for a in plan.adapters],
            "carried": {name: file.side for name, file in small.items()},
        },
    }


def _planned(job: Mapping[str, Any], folder: Path) -> MergePlan:
    adapters = [open_adapter(Path(path), folder / CONVERTED) for path in job["adapters"]]
    options = MergeOptions.from_json(job["options"])
    if job["raw"] is not None:
        return plan_of_raw(adapters, Path(job["base"]), options, Path(job["raw"]))
    names = None if job["names"] is None else NameMap.from_json(job["names"])
    return plan_merge(adapters, Path(job["base"]), options, names)


def _write_weights(
    plan: MergePlan, folder: Path, job: Mapping[str, Any], progress: Progress
) -> dict[str, Written]:
    """Every weight file under its name, whole; those that an earlier run finished are kept."""
    base = {
        name: Stored(plan.weights.headers[file].path, entry)
        for name, (file, entry) in plan.weights.tensors().items()
    }
    engine = Engine(
        base, gemm_of(plan.engine), total=job["bytes"], label=job["label"], progress=progress
    )
    journal = Journal(folder / JOURNAL, job["job"])
    written = {}
    for file in plan.layout.files:
        target = folder / FILES / file.name
        known = journal.finished(folder / FILES, file.name)
        if known is not None:
            engine.skip(file)
        else:
            partial = target.with_name(f".{file.name}.partial")
            known = engine.write(file, partial)
            try:
                partial.rename(target)
                sync_directory(target.parent)
            except OSError as error:
                raise disk_error(error, target) from error
            journal.record(file.name, known)
        written[file.name] = known
    return written


def _home(plan: MergePlan) -> frozenset[Path]:
    return frozenset(header.path for header in plan.weights.headers.values())


def _require_change(plan: MergePlan, sums: Mapping[str, Sums]) -> None:
    if any(some.moved for some in sums.values()):
        return
    raise CheckError(
        "HT116",
        "the merge changed nothing: every change is zero or below the base's rounding",
        where=str(plan.adapters[0].weights),
        detail=("The output was removed.",),
        next="check that this adapter was trained: compare it with an earlier step",
    )


def _json(index: Mapping[str, Any]) -> bytes:
    return json.dumps(index, indent=2, sort_keys=True).encode() + b"\n"


if __name__ == "__main__":
    child_main(work)
