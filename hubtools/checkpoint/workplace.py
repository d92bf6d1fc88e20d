"""The place beside a directory in the making, which appears whole or not at all.

Beside `out` lies `.{out}.merge/` or `.{out}.ingest/` with a lock, the record of the finished job
and, while it runs, the new files with a journal of those that are whole: a run that was killed goes
on where it was.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hubtools.digests import sha256_file
from hubtools.errors import UsageError
from hubtools.files import disk_error, locked, sync_directory, write_json

JOURNALS = {"merge": "journal.json", "ingest": "done.json"}


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where a job is done.

    Args:
        out: the directory it makes.
        what: the kind of job.
    """

    out: Path
    what: Literal["merge", "ingest"]

    @property
    def folder(self) -> Path:
        """The place itself, on the disk of `out`."""
        return self.out.absolute().parent / f".{self.out.name}.{self.what}"

    @property
    def files(self) -> Path:
        """The new files, until they become `out`."""
        return self.folder / "files"

    @property
    def journal(self) -> Path:
        """Tells which of them are whole."""
        return self.folder / JOURNALS[self.what]

    @property
    def occupied(self) -> bool:
        """Whether something is at `out`. An empty directory is free: the new one takes its place.

        The working directory cannot be replaced under the shell that is in it, nor a mount point.
        """
        try:
            empty = self.out.is_dir() and not self.out.is_symlink() and not any(self.out.iterdir())
        except OSError:
            return True
        if empty:
            return os.path.ismount(self.out) or self.out.samefile(os.curdir)
        return os.path.lexists(self.out)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the place and keep others out of it.

        Raises:
            UsageError: HT120 when `out` is `occupied` and nothing was made here; nothing is left
                behind.
            EnvironmentFailure: HT901 it cannot be made, HT903 in use.
        """
        if self.occupied and not (self.out.exists() and self._record.is_file()):
            raise self._occupied("it was made by something else", removable=False)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(error, self.folder, kept="Nothing was written.") from error
        with locked(self.folder / "lock", str(self.out)):
            for torn in self.folder.glob(".*.tmp"):  # of a run that was killed while it wrote
                torn.unlink(missing_ok=True)
            yield

    def finished(self, job: str) -> dict[str, Any] | None:
        """The result of `job` when it made `out`, every file as it was; None when it is free.

        Raises:
            UsageError: HT120 when `out` holds something else.
        """
        if not self.occupied:
            return None
        known, result = self._recorded()
        ours = bool(result) and _same_files(self.out, result["files"])
        if ours and known == job:
            return result
        why = "it was made from other inputs, or by something else"
        if known == job:
            why = "its files were changed since they were written"
        raise self._occupied(why, removable=ours)

    def _occupied(self, why: str, *, removable: bool) -> UsageError:
        """HT120; only what a job of ours made, all of it, may be named for removal."""
        made = f"rm -r {shlex.quote(str(self.out))} (an earlier {self.what} made it), or "
        return UsageError(
            "HT120",
            f"{self.out} is already there",
            where=str(self.out),
            detail=(why, "Nothing was changed."),
            next=f"{made if removable else ''}choose another place (-o), then run the same command"
            " again",
        )

    def publish(self, job: str, result: dict[str, Any]) -> None:
        """Record the result of `job`, then let the new files become `out`.

        Raises:
            EnvironmentFailure: HT901.
        """
        write_json(self._record, {"job": job, "result": result})
        try:
            self.files.rename(self.out)
            sync_directory(self.out.absolute().parent)
            self.journal.unlink(missing_ok=True)
        except OSError as error:
            raise disk_error(error, self.out) from error

    @property
    def _record(self) -> Path:
        return self.folder / "job.json"

    def _recorded(self) -> tuple[str, dict[str, Any]]:
        """The job that was finished here, and its result; nothing when there is no such record."""
        try:
            known = json.loads(self._record.read_bytes())
            result: dict[str, Any] = known["result"]
            for file in result["files"].values():
                file["sha256"]
            return str(known["job"]), result
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return "", {}


def keep_only(folder: Path, names: Collection[str]) -> None:
    """Empty `folder`, except for its files `names`; make it when it is not there.

    Raises:
        EnvironmentFailure: HT901.
    """
    if not names:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(exist_ok=True)
        for file in folder.iterdir():
            if file.name not in names:
                shutil.rmtree(file) if file.is_dir() else file.unlink()
    except OSError as error:
        raise disk_error(error, folder) from error


def _same_files(out: Path, wanted: dict[str, Any]) -> bool:
    found = {file.relative_to(out).as_posix(): file for file in out.rglob("*") if file.is_file()}
    return found.keys() == wanted.keys() and all(
        sha256_file(file) == wanted[name]["sha256"] for name, file in found.items()
    )
