"""The last steps of a merge: what lies beside the weights, and the account of what was done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubtools.checkpoint.carry import SmallFile
from hubtools.checkpoint.merging.plan import MergePlan
from hubtools.checkpoint.merging.report import merge_report
from hubtools.checkpoint.merging.written import Sums, Written
from hubtools.checkpoint.shards import INDEX
from hubtools.digests import sha256_bytes, sha256_file
from hubtools.errors import CheckError
from hubtools.files import sync_directory, write_atomic


def finish(
    plan: MergePlan, written: Mapping[str, Written], small: Mapping[str, SmallFile], folder: Path
) -> dict[str, Any]:
    """Complete `folder`, which holds the weights; the result of `merge.merge`.

    Args:
        plan: that was followed.
        written: the weight files.
        small: what lies beside them.
        folder: where all lie.

    Raises:
        CheckError: HT116 when no value of the result differs from the base.
        EnvironmentFailure: HT901 disk full.
    """
    sums = {name: some for file in written.values() for name, some in file.sums.items()}
    _require_change(plan, sums)
    files = {name: {"sha256": w.sha256, "size": w.size} for name, w in written.items()}
    contents = {name: file.data for name, file in small.items()}
    if plan.layout.index is not None:
        contents[INDEX] = plan.layout.index_bytes or _json(plan.layout.index)
    for name, data in contents.items():
        write_atomic(folder / name, data)
        files[name] = {"sha256": sha256_bytes(data), "size": len(data)}
    sync_directory(folder)
    home = frozenset(header.path for header in plan.weights.headers.values())
    by = "peft" if plan.merged_by == "peft" else plan.engine
    return {
        "files": dict(sorted(files.items())),
        "weights": {name: w.sha256 for name, w in written.items()},
        "report": {
            **plan.to_json(),
            **merge_report(plan.layout, sums, home, by),
            "adapters": [{"weights": sha256_file(a.weights)} for a in plan.adapters],
            "carried": {name: file.side for name, file in small.items()},
        },
    }


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
