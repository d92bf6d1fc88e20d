"""Which files of an unfinished job are whole: what the next run need not write again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubtools.digests import sha256_file
from hubtools.files import write_json


class Journal:
    """Finished files of one job, by name; beside the folder that holds them.

    Args:
        path: the journal. One that cannot be read, or tells of another job, counts as empty.
        job: identity of everything the files depend on.
    """

    def __init__(self, path: Path, job: str) -> None:
        self._path, self._job = path, job
        self._files: dict[str, Any] = {}
        try:
            known = json.loads(path.read_bytes())
            if known["job"] == job:
                self._files = dict(known["files"])
        except (OSError, ValueError, LookupError, TypeError):
            self._files = {}

    @property
    def names(self) -> frozenset[str]:
        """Files that were finished."""
        return frozenset(self._files)

    def kept(self, folder: Path, name: str) -> dict[str, Any] | None:
        """What was added about `folder/name`, when its bytes still have the digest they had."""
        file = folder / name
        try:
            known = dict(self._files[name])
            same = file.stat().st_size == known["size"] and sha256_file(file) == known["sha256"]
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return known if same else None

    def add(self, name: str, known: Mapping[str, Any]) -> None:
        """Remember a file that is on the disk under its name: `size`, `sha256`, and more."""
        self._files[name] = dict(known)
        write_json(self._path, {"job": self._job, "files": self._files})
