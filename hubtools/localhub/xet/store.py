"""Xorbs and file records on disk: whole or absent, also after a power cut.

Under `<root>/xet/`: `xorbs/<hash>.chunks` (the chunk list) is written before `<hash>.xorb`, so a
xorb that is there is complete; `files/<hash>.json` says of which runs a file consists, and
`sha256/<sha256>` holds its xet hash. A file record is written only when the file's content is in
the object store.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hubtools.files import disk_error, sync_directory, write_atomic
from hubtools.localhub.xet.hashes import raw_of, text_of
from hubtools.localhub.xet.shard import Term
from hubtools.localhub.xet.xorb import Chunk, pack_index, unpack_index

_STRIPES = 64
_INDEXES = 64  # chunk lists kept in memory; about 200 kB each
_KINDS = ("xorbs", "files", "sha256")


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file the storage can give back: its sha256 (hex), its size in bytes and its terms."""

    sha256: str
    size: int
    terms: tuple[Term, ...]


class XetStore:
    """What the storage keeps under `<root>/xet/`; safe to share between threads."""

    def __init__(self, root: Path) -> None:
        self._root = root / "xet"
        self._incoming = self._root / "incoming"
        for folder in (self._incoming, *(self._root / kind for kind in _KINDS)):
            folder.mkdir(parents=True, exist_ok=True)
        sync_directory(self._root)
        for leftover in (*self._incoming.iterdir(), *self._root.glob("*/.*.tmp")):
            leftover.unlink(missing_ok=True)
        self._locks = [threading.Lock() for _ in range(_STRIPES)]
        self._index = lru_cache(maxsize=_INDEXES)(self._read_index)

    def lock(self, name: bytes) -> threading.Lock:
        """The lock for whoever works on this raw hash: the same work is not done twice at once."""
        return self._locks[name[0] % _STRIPES]

    @contextmanager
    def incoming(self) -> Iterator[Path]:
        """An empty scratch file, removed afterwards unless it was moved into place.

        Raises:
            EnvironmentFailure: HT901 when the disk is full.
        """
        try:
            descriptor, name = tempfile.mkstemp(dir=self._incoming)
        except OSError as error:
            raise disk_error(error, self._incoming) from error
        os.close(descriptor)
        path = Path(name)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def has_xorb(self, name: bytes) -> bool:
        """Whether the xorb with this raw hash is here."""
        return self.xorb_path(name).is_file()

    def xorb_path(self, name: bytes) -> Path:
        """Where the xorb with this raw hash is, or would be."""
        return self._place("xorbs", text_of(name), ".xorb")

    def chunks_of(self, name: bytes) -> list[Chunk] | None:
        """The chunk list of a xorb, or None when the storage does not have it."""
        if not self.has_xorb(name):
            return None
        return self._index(name)

    def _read_index(self, name: bytes) -> list[Chunk]:
        return unpack_index(self._place("xorbs", text_of(name), ".chunks").read_bytes())

    def add_xorb(self, name: bytes, scratch: Path, chunks: list[Chunk]) -> bool:
        """Move a verified xorb into place, durably.

        Args:
            name: its raw hash, recomputed by the caller.
            scratch: an `incoming` file that holds it.
            chunks: its chunk list.

        Returns:
            False when it was there already.

        Raises:
            EnvironmentFailure: HT901 when the disk is full.
        """
        path = self.xorb_path(name)
        with self.lock(name):
            if path.is_file():
                return False
            write_atomic(path.with_suffix(".chunks"), pack_index(chunks))
            try:
                with scratch.open("rb") as stream:
                    os.fsync(stream.fileno())
                scratch.replace(path)
                sync_directory(path.parent)
            except OSError as error:
                raise disk_error(error, path) from error
        return True

    def file(self, name: bytes) -> FileRecord | None:
        """What is known of the file with this raw xet hash."""
        try:
            data = json.loads(self._place("files", text_of(name), ".json").read_bytes())
        except FileNotFoundError:
            return None
        terms = tuple(
            Term(raw_of(xorb), start, end, length) for xorb, start, end, length in data["terms"]
        )
        return FileRecord(data["sha256"], data["size"], terms)

    def has_file(self, name: bytes, sha256: str) -> bool:
        """Whether this file is on record and can be found by its sha256."""
        record = self.file(name)
        known = self._place("sha256", sha256).is_file()
        return record is not None and record.sha256 == sha256 and known

    def add_file(self, name: bytes, record: FileRecord) -> None:
        """Record a file whose content is in the object store; the caller holds its `lock`.

        Raises:
            EnvironmentFailure: HT901 when the disk is full.
        """
        terms = [[text_of(t.xorb), t.start, t.end, t.length] for t in record.terms]
        data = {"sha256": record.sha256, "size": record.size, "terms": terms}
        write_atomic(self._place("files", text_of(name), ".json"), json.dumps(data).encode())
        write_atomic(self._place("sha256", record.sha256), text_of(name).encode())

    def _place(self, kind: str, name: str, suffix: str = "") -> Path:
        return self._root / kind / f"{name}{suffix}"


def hash_of_sha256(root: Path, sha256: str) -> str | None:
    """The xet hash (hex) of the file with this sha256, or None when it did not come by xet.

    Args:
        root: the Hub's folder, as for `XetStore`.
        sha256: 64 lower-case hex digits.

    Raises:
        ValueError: `sha256` is no digest.
    """
    raw_of(sha256)  # nothing but a digest becomes a file name
    try:
        return (root / "xet" / "sha256" / sha256).read_text()
    except FileNotFoundError:
        return None
