"""Merge adapters into their base: a new directory that appears whole or not at all.

This is the parent's side: it plans, and lets a child process do the work in a `Workplace`, where a
run that was killed goes on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hubtools.checkpoint.adapter import Adapter, open_adapter
from hubtools.checkpoint.carry import SmallFile, with_edits
from hubtools.checkpoint.journal import Journal
from hubtools.checkpoint.merging.inputs import ENGINE_VERSION as ENGINE_VERSION
from hubtools.checkpoint.merging.inputs import Inputs, identity, peft_versions, read_inputs
from hubtools.checkpoint.merging.options import MergeOptions
from hubtools.checkpoint.shards import Weights, read_weights
from hubtools.checkpoint.workplace import Workplace, keep_only
from hubtools.children import ONE_THREAD, Child
from hubtools.errors import EnvironmentFailure
from hubtools.files import disk_error, ensure_space
from hubtools.progress import Progress, silent

if TYPE_CHECKING:
    from hubtools.checkpoint.merging.peft_engine import PeftPlan
    from hubtools.checkpoint.merging.plan import MergePlan

_CONVERTED, _RAW = "converted", "raw-"
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
    place = Workplace(out, "merge")
    converted = place.folder / _CONVERTED
    paths = [adapters] if isinstance(adapters, Path) else adapters
    with place.held():
        try:
            opened = [open_adapter(path, converted) for path in paths]
            inputs = read_inputs(opened, base)
            job = _Merge(opened, base, inputs, place, options or MergeOptions(), log, progress)
            return job.run(engine)
        finally:
            if not place.journal.exists():
                shutil.rmtree(converted, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Merge:
    """One merge, its lock held; arguments as for `merge`."""

    adapters: list[Adapter]
    base: Path
    inputs: Inputs
    place: Workplace
    options: MergeOptions
    log: Path
    progress: Progress

    def run(self, engine: str) -> dict[str, Any]:
        """The result of `merge`."""
        return self._by_peft() if engine == "peft" else self._by_recipes()

    def _by_recipes(self) -> dict[str, Any]:
        dora = any(adapter.config.fields.get("use_dora") for adapter in self.adapters)
        with self._child("torch" if dora else "numpy") as child:
            # Imported while the child does its own imports.
            from hubtools.checkpoint.merging.plan import plan_merge

            plan = plan_merge(self.adapters, self.base, self.options, log=self.log)
            small = with_edits(self.inputs.small, plan.config_edits)

            def make(job: str, kept: int) -> dict[str, Any]:
                self._require_space(plan.layout.bytes - kept)
                return self._written(child, plan, small, job)

            return self._whole(plan.weights, [plan.engine], make)

    def _by_peft(self) -> dict[str, Any]:
        from hubtools.checkpoint.merging.peft_engine import (
            merge_with_peft,
            plan_of_raw,
            plan_peft,
        )

        plan: PeftPlan = plan_peft(self.adapters, self.base, self.options)

        def make(job: str, kept: int) -> dict[str, Any]:
            raw = self.place.folder / f"{_RAW}{job[:16]}"
            self._require_space(plan.bytes * (1 if raw.exists() else 2) - kept)
            merge_with_peft(plan, raw, log=self.log, progress=self.progress)
            told = plan_of_raw(self.adapters, self.base, self.options, raw)
            small = with_edits(self.inputs.small, told.config_edits)
            with self._child("numpy") as child:
                return self._written(child, told, small, job)

        return self._whole(read_weights(self.base), ["peft", *peft_versions()], make)

    def _whole(
        self,
        weights: Weights,
        engine: list[str],
        make: Callable[[str, int], dict[str, Any]],
    ) -> dict[str, Any]:
        """What `make` makes, published; or what is there already.

        `make` gets the job's name, and how many bytes are there already.
        """
        job = identity(self.inputs, self.adapters, weights, self.options, engine)
        known = self.place.finished(job)
        if known is not None:
            return known
        kept = _clear(self.place, job)
        try:
            result = make(job, kept)
        except BaseException as error:
            again = isinstance(error, EnvironmentFailure | KeyboardInterrupt)
            changed = isinstance(error, EnvironmentFailure) and error.id in ("HT118", "HT155")
            _abandon(self.place, job if again and not changed else "")
            raise
        self.place.publish(job, result)
        _remove_raw(self.place.folder, "")
        return result

    def _require_space(self, size: int) -> None:
        ensure_space(self.place.folder, size + _MARGIN, f"the merged model {self.place.out.name}")

    def _child(self, library: str) -> Child:
        return Child(
            "hubtools.checkpoint.merging.child", log=self.log, env=ONE_THREAD, early=[library]
        )

    def _written(
        self, child: Child, plan: MergePlan, small: Mapping[str, SmallFile], job: str
    ) -> dict[str, Any]:
        """Let a child write the weights, and complete them."""
        from hubtools.checkpoint.merging.finish import finish
        from hubtools.checkpoint.merging.wire import files_to_json
        from hubtools.checkpoint.merging.written import Written

        home = {header.path for header in plan.weights.headers.values()}
        told = child.run(
            {
                "files": files_to_json(plan.layout.files),
                "base": _replaced(plan, home),
                "home": [str(path) for path in sorted(home)],
                "engine": plan.engine,
                "stamps": self.inputs.stamps,
                "folder": str(self.place.files),
                "journal": str(self.place.journal),
                "identity": job,
                "bytes": plan.layout.bytes,
                "label": f"merge {self.place.out.name}",
            },
            what=f"merge into {self.place.out}",
            progress=self.progress,
        )
        written = {name: Written.from_json(file) for name, file in told["written"].items()}
        return finish(plan, written, small, self.place.files)


def _replaced(plan: MergePlan, home: set[Path]) -> dict[str, Any]:
    """The base's tensors in whose place others come."""
    from hubtools.checkpoint.merging.recipe import Stored
    from hubtools.checkpoint.merging.wire import stored_to_json

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


def _clear(place: Workplace, job: str) -> int:
    """Remove what an unfinished run of another job left, and half files; returns bytes kept."""
    _remove_raw(place.folder, job)
    names = Journal(place.journal, job).names
    if not names:
        place.journal.unlink(missing_ok=True)
    keep_only(place.files, names)
    try:
        return sum(file.stat().st_size for file in place.files.iterdir())
    except OSError as error:
        raise disk_error(error, place.files) from error


def _abandon(place: Workplace, job: str) -> None:
    """Keep whole files of `job` for the next run; leave nothing else."""
    _clear(place, job)
    if not any(place.files.iterdir()):
        place.files.rmdir()
