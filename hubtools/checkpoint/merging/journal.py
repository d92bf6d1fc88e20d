"""Which weight files of an unfinished merge are whole: what the next run need not write again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hubtools.checkpoint.merging.written import Written
from hubtools.digests import sha256_file
from hubtools.files import write_json


class Journal:
    """Finished files of one job, by name; beside the folder that holds them.

    Args:
        path: the journal. One that cannot be read, or tells of another job, counts as empty.
        job: identity of inputs and arithmetic.
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

    def finished(self, folder: Path, name: str) -> Written | None:
        """What is known of `folder/name`, when its bytes still have the digest they had."""
        file = folder / name
        try:
            written = Written.from_json(self._files[name])
            same = file.stat().st_size == written.size and sha256_file(file) == written.sha256
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None
        return written if same else None

    def record(self, name: str, written: Written) -> None:
        """Remember a file that is on the disk under its name."""
        self._files[name] = written.to_json()
        write_json(self._path, {"job": self._job, "files": self._files})
