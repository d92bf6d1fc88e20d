"""What a killed ingest had finished: file by file, believed only by digest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hubtools.digests import sha256_file
from hubtools.files import write_json


class Journal:
    """The finished weight files of one job.

    Args:
        path: the record; of another job or unreadable, it is started afresh.
        job: identity of the job.
    """

    def __init__(self, path: Path, job: str) -> None:
        self._path, self._job = path, job
        self._files: dict[str, dict[str, Any]] = {}
        try:
            known = json.loads(path.read_bytes())
            if known["job"] == job:
                self._files = dict(known["files"])
        except (OSError, ValueError, LookupError, TypeError):
            self._files = {}

    def kept(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Finished files whose bytes are still those; everything else in `folder` goes."""
        found = {
            name: file
            for name, file in self._files.items()
            if (folder / name).is_file() and sha256_file(folder / name) == file.get("sha256")
        }
        if not found:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        for file in folder.iterdir():
            if file.name not in found:
                shutil.rmtree(file) if file.is_dir() else file.unlink()
        self._files = found
        return {name: dict(file) for name, file in found.items()}

    def add(self, name: str, file: dict[str, Any]) -> None:
        """Remember one more."""
        self._files[name] = file
        write_json(self._path, {"job": self._job, "files": self._files})


def stamps(files: Sequence[Path]) -> list[list[Any]]:
    """Place, inode, size and time of each file: what changes when someone writes to it."""
    found = []
    for file in files:
        stat = file.stat()
        found.append([str(file.resolve()), stat.st_ino, stat.st_size, stat.st_mtime_ns])
    return found
