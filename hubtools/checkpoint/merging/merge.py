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
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from hubtools.checkpoint.adapter import Adapter, open_adapter
from hubtools.checkpoint.merging.inputs import ENGINE_VERSION as ENGINE_VERSION
from hubtools.checkpoint.merging.inputs import identity, weight_stamps
from hubtools.checkpoint.merging.journal import Journal
from hubtools.checkpoint.merging.options import MergeOptions
from hubtools.checkpoint.merging.peft_engine import (
    PeftPlan,
    merge_with_peft,
    plan_of_raw,
    plan_peft,
)
from hubtools.checkpoint.merging.plan import MergePlan, plan_merge
from hubtools.checkpoint.shards import read_weights
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
    engine: Literal["stream", "peft"] = "stream",
    log: Path,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Write the merged model to `out`.

    Args:
        adapters: their directories, in the order in which they are merged.
        base: directory of the model they were trained on.
        out: new directory; one that this very job already made is checked and used again.
        options: default: none chosen.
        engine: `peft` lets PEFT compute what changes, in memory; writing is the same.
        log: where the child process tells its story.
        progress: bytes written so far.

    Returns:
        `files` {name: {sha256, size}} of everything in `out`, `weights` {name: sha256} and `report`
        (see `report.merge_report`, with the plan, adapter digests and the origin of each file).

    Raises:
        CheckError: as `open_adapter`, `plan_merge` and `plan_peft`; HT116 nothing changed, HT117
            when a merged value is not finite.
        UsageError: HT120 when `out` holds something else.
        EnvironmentFailure: HT118/HT155 an input changed, HT901/HT902 disk full, HT903 in use,
            HT904 the child died.
    """
    work = out.absolute().parent / f".{out.name}.merge"
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, work) from error
    paths = [adapters] if isinstance(adapters, Path) else adapters
    with locked(work / "lock", str(out)):
        try:
            opened = [open_adapter(path, work / _CONVERTED) for path in paths]
            job = _Merge(opened, base, out, work, options or MergeOptions(), log, progress)
            return job.run(engine)
        finally:
            if not (work / _JOURNAL).exists():
                shutil.rmtree(work / _CONVERTED, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Merge:
    """One merge, its lock held; arguments as for `merge`."""

    adapters: list[Adapter]
    base: Path
    out: Path
    work: Path
    options: MergeOptions
    log: Path
    progress: Progress

    def run(self, engine: str) -> dict[str, Any]:
        """The result of `merge`."""
        plan: MergePlan | PeftPlan
        if engine == "peft":
            plan = plan_peft(self.adapters, self.base, self.options)
            weights, by = read_weights(self.base), ["peft", *_versions()]
        else:
            plan = plan_merge(self.adapters, self.base, self.options, log=self.log)
            weights, by = plan.weights, [plan.engine]
        job = identity(self.adapters, self.base, weights, self.options, by)
        if self.out.exists():
            return _reuse(self.out, self.work / _RECORD, job)
        stamps = weight_stamps(self.adapters, weights)
        kept = _clear(self.work, job)
        try:
            result = self._made(plan, job, stamps, kept)
        except BaseException as error:
            again = isinstance(error, EnvironmentFailure | KeyboardInterrupt)
            changed = isinstance(error, EnvironmentFailure) and error.id in ("HT118", "HT155")
            _abandon(self.work, job if again and not changed else "")
            raise
        self._publish(job, result)
        return result

    def _made(
        self, plan: MergePlan | PeftPlan, job: str, stamps: list[list[Any]], kept: int
    ) -> dict[str, Any]:
        """The child's result; `kept` bytes are there already."""
        what = f"the merged model {self.out.name}"
        if isinstance(plan, MergePlan):
            ensure_space(self.work, plan.layout.bytes - kept + _MARGIN, what)
            return self._written(plan, None, job, stamps)
        raw = self.work / f"raw-{job[:16]}"
        copies = 1 if raw.exists() else 2
        ensure_space(self.work, copies * plan.bytes - kept + _MARGIN, what)
        merge_with_peft(plan, raw, log=self.log, progress=self.progress)
        told = plan_of_raw(self.adapters, self.base, self.options, raw)
        return self._written(told, raw, job, stamps)

    def _written(
        self, plan: MergePlan, raw: Path | None, job: str, stamps: list[list[Any]]
    ) -> dict[str, Any]:
        one_thread = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        return run_child(
            "hubtools.checkpoint.merging.child",
            {
                "adapters": [str(adapter.named.absolute()) for adapter in self.adapters],
                "base": str(self.base.absolute()),
                "options": self.options.to_json(),
                "names": None if plan.names is None else plan.names.to_json(),
                "raw": None if raw is None else str(raw),
                "stamps": stamps,
                "bytes": plan.layout.bytes,
                "job": job,
                "work": str(self.work),
                "label": f"merge {self.out.name}",
            },
            log=self.log,
            what=f"merge into {self.out}",
            progress=self.progress,
            env=dict.fromkeys(one_thread, "1"),
        )

    def _publish(self, job: str, result: dict[str, Any]) -> None:
        write_json(self.work / _RECORD, {"job": job, "result": result})
        try:
            (self.work / _FILES).rename(self.out)
            sync_directory(self.out.absolute().parent)
            (self.work / _JOURNAL).unlink(missing_ok=True)
        except OSError as error:
            raise disk_error(error, self.out) from error
        _remove_raw(self.work, "")


def _versions() -> list[str]:
    found = []
    for name in ("peft", "torch", "transformers"):
        with suppress(PackageNotFoundError):  # its absence is told when PEFT is started
            found.append(f"{name} {version(name)}")
    return found


def _remove_raw(work: Path, job: str) -> None:
    """Remove what PEFT saved for other jobs."""
    for folder in work.glob("raw-*"):
        if folder.name != f"raw-{job[:16]}":
            shutil.rmtree(folder, ignore_errors=True)


def _clear(work: Path, job: str) -> int:
    """Remove what an unfinished run of another job left, and half files; returns bytes kept."""
    _remove_raw(work, job)
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
