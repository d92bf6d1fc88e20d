"""Content-addressed files: every byte the embedded Hub keeps lies under its sha256.

Names are digests, so nothing a client sends can choose a path. A file is streamed to `tmp/`,
flushed to disk, then renamed: an object is whole or absent, also after a power cut.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from pathlib import Path
from typing import BinaryIO

from hubtools.digests import sha256_file
from hubtools.files import sync_directory

_SHA256 = re.compile(r"[0-9a-f]{64}")


class ObjectError(Exception):
    """The bytes are not the ones their name promises, or the name is not a sha256."""


class ObjectStore:
    """Files under `<root>/objects/ab/cd/<sha256>`; safe to use from many threads.

    Args:
        root: the Hub's directory; `objects/` and `tmp/` are made below it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root / "objects"
        self._temporary = root / "tmp"
        self._root.mkdir(parents=True, exist_ok=True)
        self._temporary.mkdir(parents=True, exist_ok=True)

    def path(self, sha256: str) -> Path:
        """Where the object lies, or would lie.

        Raises:
            ObjectError: not 64 lowercase hex digits.
        """
        if not _SHA256.fullmatch(sha256):
            raise ObjectError(f"not a sha256: {sha256[:80]!r}")
        return self._root / sha256[:2] / sha256[2:4] / sha256

    def has(self, sha256: str) -> bool:
        """Whether the object is here, whole."""
        return self.path(sha256).is_file()

    def size(self, sha256: str) -> int:
        """Size in bytes.

        Raises:
            FileNotFoundError: no such object.
        """
        return self.path(sha256).stat().st_size

    def check(self, sha256: str) -> None:
        """Read the object again and compare its digest with its name.

        Raises:
            ObjectError: missing, or its bytes are not what the name says.
        """
        path = self.path(sha256)
        if not path.is_file():
            raise ObjectError(f"object {sha256} was never uploaded")
        found = sha256_file(path)
        if found != sha256:
            raise ObjectError(f"object {sha256} holds bytes with sha256 {found}")

    def begin(self) -> ObjectWriter:
        """A writer for a new object whose digest need not be known yet."""
        return ObjectWriter(self, self._temporary / f"{secrets.token_hex(12)}.part")

    def put(self, data: bytes) -> str:
        """Store bytes that are in memory; returns their sha256."""
        writer = self.begin()
        try:
            writer.write(data)
            return writer.finish(None)
        except BaseException:
            writer.abort()
            raise

    def scratch(self, name: str) -> Path:
        """A file in `tmp/` for parts that arrive out of order (`name` is made by the server)."""
        return self._temporary / f"{name}.parts"

    def adopt(self, path: Path, expected: str) -> None:
        """Take over a finished file on the same disk after reading it once.

        Raises:
            ObjectError: another digest; the file is removed.
        """
        target = self.path(expected)
        found = sha256_file(path)
        if found != expected:
            path.unlink()
            raise ObjectError(f"expected sha256 {expected}, received {found}")
        with path.open("rb+") as stream:
            os.fsync(stream.fileno())
        self._place(path, target)

    def _place(self, source: Path, target: Path) -> None:
        for folder in (target.parent.parent, target.parent):
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                sync_directory(folder.parent)
        source.replace(target)
        sync_directory(target.parent)


class ObjectWriter:
    """One object on its way in: `write` pieces, then `finish` or `abort`."""

    def __init__(self, store: ObjectStore, path: Path) -> None:
        self._store = store
        self._path = path
        self._stream: BinaryIO = path.open("xb")
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        """Append a piece (any bytes-like size; hashed while it is written)."""
        self._digest.update(data)
        self._stream.write(data)
        self.size += len(data)

    def finish(self, expected: str | None) -> str:
        """Make the object durable under its sha256 and return that.

        Raises:
            ObjectError: `expected` is given and the bytes hash to something else; nothing is kept.
        """
        found = self._digest.hexdigest()
        if expected is not None and found != expected:
            self.abort()
            raise ObjectError(f"expected sha256 {expected}, received {found}")
        try:
            self._stream.flush()
            os.fsync(self._stream.fileno())
        finally:
            self._stream.close()
        self._store._place(self._path, self._store.path(found))
        return found

    def abort(self) -> None:
        """Forget what was written."""
        self._stream.close()
        self._path.unlink(missing_ok=True)
