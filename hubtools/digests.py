"""Digests: the names by which stages know their inputs and outputs.

sha256 is the Hub's LFS object id; the git blob sha1 is its id for small files. A digest is computed
once: `DigestCache` remembers it by (path, size, mtime_ns, inode).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

CHUNK = 4 << 20


def canonical_json(value: Any) -> bytes:
    """Serialise `value` so that equal values give equal bytes: sorted keys, no spaces, UTF-8.

    Raises:
        ValueError: on NaN or infinity, which are not JSON.
        TypeError: on a value that is not JSON (a Path, a numpy scalar).
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def sha256_bytes(data: bytes) -> str:
    """Hex sha256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def sha256_json(value: Any) -> str:
    """Hex sha256 of the canonical JSON of `value`: how stage keys and protocol ids are made."""
    return sha256_bytes(canonical_json(value))


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes, read in 4 MiB pieces."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as stream:
        while piece := stream.read(CHUNK):
            digest.update(piece)
    return digest.hexdigest()


def git_blob_sha1(data: bytes) -> str:
    """The object id git gives to a blob: what the Hub lists as `oid` of a regular file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def weights_digest(files: Mapping[str, str]) -> str:
    """The identity of a checkpoint's weights.

    Args:
        files: file name → sha256 of every weight file (`*.safetensors`), any order.

    Returns:
        sha256 of the canonical JSON of the mapping: what `Subject.weights` holds.
    """
    return sha256_json(dict(files))


class DigestCache:
    """sha256 by path, recomputed only when size, mtime or inode changed.

    The cache file is advisory: unreadable or truncated, it is started afresh; where it cannot be
    kept, the digests are computed again next time.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known: dict[str, list[Any]] = {}
        if path is not None and path.is_file():
            try:
                loaded = json.loads(path.read_bytes())
            except (OSError, ValueError, RecursionError):
                loaded = {}
            if isinstance(loaded, dict):
                self._known = {k: v for k, v in loaded.items() if _is_entry(v)}

    def sha256(self, path: Path) -> str:
        """sha256 of the file now at `path`, from the cache when its stat is unchanged."""
        stat = path.stat()
        stamp = [stat.st_size, stat.st_mtime_ns, stat.st_ino]
        name = str(path.resolve())
        known = self._known.get(name)
        if known is not None and known[:3] == stamp:
            return str(known[3])
        digest = sha256_file(path)
        self._known[name] = [*stamp, digest]
        return digest

    def remember(self, path: Path, digest: str) -> None:
        """Record a digest that was computed while the file was written."""
        stat = path.stat()
        self._known[str(path.resolve())] = [
            stat.st_size,
            stat.st_mtime_ns,
            stat.st_ino,
            digest,
        ]

    def save(self) -> None:
        """Write the cache beside the store (tmp + rename; losing it costs only time)."""
        if self._path is None:
            return
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(canonical_json(self._known))
            temporary.replace(self._path)
        except OSError:  # what must be kept says so itself when it cannot be
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _is_entry(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 4 and isinstance(value[3], str)
