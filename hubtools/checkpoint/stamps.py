"""Whether files stayed the same while they were read: place, inode, size and time of each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

Stamp = tuple[str, int, int, int]


def stamps_of(files: Iterable[Path]) -> list[Stamp]:
    """The stamp of each file now."""
    return [_stamp(file.absolute()) for file in files]


def _stamp(file: Path) -> Stamp:
    stat = file.stat()
    return str(file), stat.st_ino, stat.st_size, stat.st_mtime_ns
