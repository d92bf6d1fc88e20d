"""Merge adapters into their base: a new directory that appears whole or not at all.

This is the parent's side: it plans, checks the place, and lets a child process do the work. Beside
`out` lies `.{out}.merge/` with a lock, the record of the finished job and, while it runs, the new
files with a journal of those that are whole: a run that was killed goes on where it was.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hubtools.checkpoint.adapter import Adapter, open_adapter
from hubtools.checkpoint.merging.inputs import ENGINE_VERSION as ENGINE_VERSION
from hubtools.checkpoint.merging.inputs import identity, weight_stamps
from hubtools.checkpoint.merging.journal import Journal
from hubtools.checkpoint.merging.options import MergeOptions
from hubtools.checkpoint.merging.plan import MergePlan, plan_merge
from hubtools.children import run_child
from hubtools.digests import sha256_file
from hubtools.errors import EnvironmentFailure, UsageError
from hubtools.files import disk_error, ensure_space, locked, sync_directory, write_json
from hubtools.progress import Progress, silent

_FILES, _JOURNAL, _RECORD, _CONVERTED = "files", "journal.json", "job.json", "converted"
_MARGIN = 64 << 20


def merge(
    adapters: Sequence[Path] | Path,
    base: Path,
    out: Path,
    *,
    options: MergeOptions | None = None,
    log: Path,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Write the merged model to `out`.

    Args:
        adapters: their directories, in the order in which they are merged.
        base: directory of the model they were trained on.
        out: new directory; one that this very job already made is checked and used again.
        options: default: none chosen.
        log: where the child process tells its story.
        progress: bytes written so far.

    Returns:
        `files` {name: {sha256, size}} of everything in `out`, `weights` {name: sha256} and `report`
        (see `report.merge_report`, with the plan, adapter digests and the origin of each file).

    Raises:
        CheckError: as `open_adapter` and `plan_merge`; HT116 nothing changed, HT117 when a merged
            value is not finite.
        UsageError: HT120 when `out` holds something else.
        EnvironmentFailure: HT118/HT155 an input changed, HT901/HT902 disk full, HT903 in use,
            HT904 the child died.
    """
    work = out.absolute().parent / f".{out.name}.merge"
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, work) from error
    with locked(work / "lock", str(out)):
        paths = [adapters] if isinstance(adapters, Path) else adapters
        opened = [open_adapter(path, work / _CONVERTED) for path in paths]
        try:
            return _merged(opened, base, out, work, options or MergeOptions(), log, progress)
        finally:
            if out.exists() or not (work / _JOURNAL).exists():
                shutil.rmtree(work / _CONVERTED, ignore_errors=True)


def _merged(
    adapters: Sequence[Adapter],
    base: Path,
    out: Path,
    work: Path,
    options: MergeOptions,
    log: Path,
    progress: Progress,
) -> dict[str, Any]:
    plan = plan_merge(adapters, base, options, log=log)
    job = identity(plan)
    if out.exists():
        return _reuse(out, work / _RECORD, job)
    kept = _clear(work, job)
    ensure_space(work, plan.layout.bytes - kept + _MARGIN, f"the merged model {out.name}")
    result = _run(plan, job, work, out, log, progress)
    write_json(work / _RECORD, {"job": job, "result": result})
    try:
        (work / _FILES).rename(out)
        sync_directory(out.absolute().parent)
        (work / _JOURNAL).unlink(missing_ok=True)
    except OSError as error:
        raise disk_error(error, out) from error
    return result


def _clear(work: Path, job: str) -> int:
    """Remove what an unfinished run of another job left, and half files; returns bytes kept."""
    new = work / _FILES
    names = Journal(work / _JOURNAL, job).names
    if not names:
        shutil.rmtree(new, ignore_errors=True)
        (work / _JOURNAL).unlink(missing_ok=True)
    try:
        new.mkdir(exist_ok=True)
        for file in new.iterdir():
            if file.name not in names:
                shutil.rmtree(file) if file.is_dir() else file.unlink()
        return sum(file.stat().st_size for file in new.iterdir())
    except OSError as error:
        raise disk_error(error, new) from error


def _run(
    plan: MergePlan, job: str, work: Path, out: Path, log: Path, progress: Progress
) -> dict[str, Any]:
    one_thread = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    try:
        return run_child(
            "hubtools.checkpoint.merging.child",
            {
                "adapters": [str(adapter.path.absolute()) for adapter in plan.adapters],
                "base": str(plan.base.absolute()),
                "options": plan.options.to_json(),
                "names": None if plan.names is None else plan.names.to_json(),
                "stamps": weight_stamps(plan),
                "bytes": plan.layout.bytes,
                "job": job,
                "work": str(work),
                "label": f"merge {out.name}",
            },
            log=log,
            what=f"merge into {out}",
            progress=progress,
            env=dict.fromkeys(one_thread, "1"),
        )
    except (EnvironmentFailure, KeyboardInterrupt) as error:
        changed = isinstance(error, EnvironmentFailure) and error.id in ("HT118", "HT155")
        _abandon(work, "" if changed else job)
        raise
    except BaseException:
        _abandon(work, "")
        raise


def _abandon(work: Path, job: str) -> None:
    """Keep whole files of `job` for the next run; leave nothing else."""
    _clear(work, job)
    new = work / _FILES
    if not any(new.iterdir()):
        new.rmdir()


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
