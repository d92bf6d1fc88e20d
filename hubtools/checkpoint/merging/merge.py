"""Merge an adapter into its base: a new directory that appears whole or not at all.

This is the parent's side: it plans, checks the place, and lets a child process do the work. Beside
`out` lies `.{out}.merge/` with a lock, the record of the finished job and, while it runs, the new
files; a run that was killed leaves nothing else behind, and the next one starts afresh.
"""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

from hubtools.checkpoint.adapter import CONFIG, WEIGHTS
from hubtools.checkpoint.carry import carried_files
from hubtools.checkpoint.merging.plan import MergePlan, plan_merge
from hubtools.checkpoint.shards import INDEX
from hubtools.children import run_child
from hubtools.digests import sha256_file, sha256_json
from hubtools.errors import UsageError
from hubtools.files import disk_error, ensure_space, locked, sync_directory, write_json
from hubtools.progress import Progress, silent

ENGINE_VERSION = 1
_MARGIN = 64 << 20


def merge(
    adapter: Path, base: Path, out: Path, *, log: Path, progress: Progress = silent
) -> dict[str, Any]:
    """Write the merged model to `out`.

    Args:
        adapter: directory, see `plan_merge`.
        base: directory of the model it was trained on.
        out: new directory; one that this very job already made is checked and used again.
        log: where the child process tells its story.
        progress: bytes written so far.

    Returns:
        `files` {name: {sha256, size}} of everything in `out`, `weights` {name: sha256} and `report`
        (engine, arithmetic, changed and total tensors, elements that moved, origin of each file).

    Raises:
        CheckError: as `plan_merge`; HT117 when a merged value is not finite.
        UsageError: HT120 when `out` holds something else.
        EnvironmentFailure: HT901/HT902 disk full, HT903 in use, HT904 the child died.
    """
    plan = plan_merge(adapter, base)
    job = _identity(plan)
    work = out.absolute().parent / f".{out.name}.merge"
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, work) from error
    with locked(work / "lock", str(out)):
        if out.exists():
            return _reuse(out, work / "job.json", job)
        new = work / "files"
        shutil.rmtree(new, ignore_errors=True)
        ensure_space(work, plan.weights.bytes + _MARGIN, f"the merged model {out.name}")
        result = _run(plan, new, out, log, progress)
        write_json(work / "job.json", {"job": job, "result": result})
        try:
            new.rename(out)
            sync_directory(out.absolute().parent)
        except OSError as error:
            raise disk_error(error, out) from error
    return result


def _run(plan: MergePlan, new: Path, out: Path, log: Path, progress: Progress) -> dict[str, Any]:
    one_thread = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    try:
        return run_child(
            "hubtools.checkpoint.merging.child",
            {
                "adapter": str(plan.adapter.absolute()),
                "base": str(plan.base.absolute()),
                "out": str(new),
                "label": f"merge {out.name}",
            },
            log=log,
            what=f"merge into {out}",
            progress=progress,
            env=dict.fromkeys(one_thread, "1"),
        )
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def _identity(plan: MergePlan) -> str:
    """One name for inputs and arithmetic; weights count by place, inode, size and time."""
    small = [*carried_files(plan.adapter, plan.base).items(), (CONFIG, plan.adapter / CONFIG)]
    if plan.weights.index is not None:
        small.append((INDEX, plan.base / INDEX))
    stamps = []
    for file in (
        *(header.path for header in plan.weights.headers.values()),
        plan.adapter / WEIGHTS,
    ):
        stat = file.stat()
        stamps.append([str(file.resolve()), stat.st_ino, stat.st_size, stat.st_mtime_ns])
    return sha256_json({
        "version": ENGINE_VERSION,
        "engine": plan.engine,
        "small": {name: sha256_file(file) for name, file in small},
        "weights": stamps,
    })  # fmt: skip


def _reuse(out: Path, record: Path, job: str) -> dict[str, Any]:
    try:
        known = json.loads(record.read_bytes())
        result: dict[str, Any] = known["result"]
        wanted = {name: file["sha256"] for name, file in result["files"].items()}
        same = known["job"] == job
    except (OSError, ValueError, LookupError, TypeError):
        same, wanted, result = False, {}, {}
    why = "it was made from other inputs, or by something else"
    if same:
        found = {
            file.relative_to(out).as_posix(): file for file in out.rglob("*") if file.is_file()
        }
        if found.keys() == wanted.keys() and all(
            sha256_file(file) == wanted[name] for name, file in found.items()
        ):
            return result
        why = "its files were changed since they were written"
    # Only what a merge of ours made may be named for removal: `out` can be the base, or a run.
    removal = f"rm -r {shlex.quote(str(out))} (an earlier merge made it), or " if result else ""
    raise UsageError(
        "HT120",
        f"{out} is already there",
        where=str(out),
        detail=(why, "Nothing was changed."),
        next=f"{removal}choose another place (-o), then run the same command again",
    )
