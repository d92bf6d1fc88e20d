"""Merge adapters into their base: a new directory that appears whole or not at all.

This is the parent's side: it plans, checks the place, and lets a child process do the work. Beside
`out` lies `.{out}.merge/` with a lock, the record of the finished job and, while it runs, the new
files with a journal of those that are whole: a run that was killed goes on where it was.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hubtools.checkpoint.adapter import Adapter, open_adapter
from hubtools.checkpoint.merging.finish import finish
from hubtools.checkpoint.merging.inputs import ENGINE_VERSION as ENGINE_VERSION
from hubtools.checkpoint.merging.inputs import identity, peft_versions, weight_files
from hubtools.checkpoint.merging.journal import Journal
from hubtools.checkpoint.merging.options import MergeOptions
from hubtools.checkpoint.merging.plan import MergePlan, plan_merge
from hubtools.checkpoint.merging.recipe import Stored
from hubtools.checkpoint.merging.stamps import Stamp, stamps_of
from hubtools.checkpoint.merging.wire import files_to_json, stored_to_json
from hubtools.checkpoint.merging.written import Written
from hubtools.checkpoint.shards import Weights, read_weights
from hubtools.children import run_child
from hubtools.digests import sha256_file
from hubtools.errors import EnvironmentFailure, UsageError
from hubtools.files import disk_error, ensure_space, locked, sync_directory, write_json
from hubtools.progress import Progress, silent

if TYPE_CHECKING:
    from hubtools.checkpoint.merging.peft_engine import PeftPlan

_FILES, _CONVERTED, _RAW = "files", "converted", "raw-"
_JOURNAL, _RECORD = "journal.json", "job.json"
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
        return self._by_peft() if engine == "peft" else self._by_recipes()

    def _by_recipes(self) -> dict[str, Any]:
        plan = plan_merge(self.adapters, self.base, self.options, log=self.log)

        def make(job: str, kept: int, stamps: list[Stamp]) -> dict[str, Any]:
            self._require_space(plan.layout.bytes - kept)
            return self._written(plan, job, stamps)

        return self._whole(plan.weights, [plan.engine], make)

    def _by_peft(self) -> dict[str, Any]:
        from hubtools.checkpoint.merging.peft_engine import (
            merge_with_peft,
            plan_of_raw,
            plan_peft,
        )

        plan: PeftPlan = plan_peft(self.adapters, self.base, self.options)

        def make(job: str, kept: int, stamps: list[Stamp]) -> dict[str, Any]:
            raw = self.work / f"{_RAW}{job[:16]}"
            self._require_space(plan.bytes * (1 if raw.exists() else 2) - kept)
            merge_with_peft(plan, raw, log=self.log, progress=self.progress)
            told = plan_of_raw(self.adapters, self.base, self.options, raw)
            return self._written(told, job, stamps)

        return self._whole(read_weights(self.base), ["peft", *peft_versions()], make)

    def _whole(
        self,
        weights: Weights,
        engine: list[str],
        make: Callable[[str, int, list[Stamp]], dict[str, Any]],
    ) -> dict[str, Any]:
        """What `make` makes, published; or what is there already.

        `make` gets the job's name, how many bytes are there already, and the inputs' stamps.
        """
        job = identity(self.adapters, self.base, weights, self.options, engine)
        if self.out.exists():
            return _reuse(self.out, self.work / _RECORD, job)
        stamps = stamps_of(weight_files(self.adapters, weights))
        kept = _clear(self.work, job)
        try:
            result = make(job, kept, stamps)
        except BaseException as error:
            again = isinstance(error, EnvironmentFailure | KeyboardInterrupt)
            changed = isinstance(error, EnvironmentFailure) and error.id in ("HT118", "HT155")
            _abandon(self.work, job if again and not changed else "")
            raise
        self._publish(job, result)
        return result

    def _require_space(self, size: int) -> None:
        ensure_space(self.work, size + _MARGIN, f"the merged model {self.out.name}")

    def _written(self, plan: MergePlan, job: str, stamps: list[Stamp]) -> dict[str, Any]:
        """Let a child write the weights, and complete them."""
        one_thread = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        home = {header.path for header in plan.weights.headers.values()}
        told = run_child(
            "hubtools.checkpoint.merging.child",
            {
                "files": files_to_json(plan.layout.files),
                "base": _replaced(plan, home),
                "home": [str(path) for path in sorted(home)],
                "engine": plan.engine,
                "stamps": stamps,
                "folder": str(self.work / _FILES),
                "journal": str(self.work / _JOURNAL),
                "identity": job,
                "bytes": plan.layout.bytes,
                "label": f"merge {self.out.name}",
            },
            log=self.log,
            what=f"merge into {self.out}",
            progress=self.progress,
            env=dict.fromkeys(one_thread, "1"),
        )
        written = {name: Written.from_json(file) for name, file in told["written"].items()}
        return finish(plan, written, self.work / _FILES)

    def _publish(self, job: str, result: dict[str, Any]) -> None:
        write_json(self.work / _RECORD, {"job": job, "result": result})
        try:
            (self.work / _FILES).rename(self.out)
            sync_directory(self.out.absolute().parent)
            (self.work / _JOURNAL).unlink(missing_ok=True)
        except OSError as error:
            raise disk_error(error, self.out) from error
        _remove_raw(self.work, "")


def _replaced(plan: MergePlan, home: set[Path]) -> dict[str, Any]:
    """The base's tensors in whose place others come."""
    places = plan.weights.tensors()
    names = [o.name for o in plan.layout.outputs() if o.source.path not in home]
    found = {name: places[name] for name in names if name in places}
    return {
        name: stored_to_json(Stored(plan.weights.headers[file].path, entry))
        for name, (file, entry) in found.items()
    }


def _remove_raw(work: Path, job: str) -> None:
    """Remove what PEFT saved for other jobs."""
    for folder in work.glob(f"{_RAW}*"):
        if folder.name != f"{_RAW}{job[:16]}":
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
