"""Whether files stayed the same while they were read: place, inode, size and time of each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hubtools.errors import EnvironmentFailure

Stamp = tuple[str, int, int, int]


def stamps_of(files: Iterable[Path]) -> list[Stamp]:
    """The stamp of each file now."""
    return [_stamp(file.absolute()) for file in files]


def require_unchanged(stamps: Iterable[Stamp | list[str | int]]) -> None:
    """Refuse a result made from files that changed since their stamps were taken.

    Raises:
        EnvironmentFailure: HT155, naming the first such file.
    """
    for stamp in stamps:
        file = Path(str(stamp[0]))
        try:
            same = tuple(stamp) == _stamp(file)
        except OSError:  # gone, or no longer ours to read
            same = False
        if not same:
            raise EnvironmentFailure(
                "HT155",
                "a weight file changed while it was merged",
                where=str(file),
                detail=("The result would be of no single input; it was removed.",),
                next="wait until nothing writes there any more, then run the same command again",
            )


def _stamp(file: Path) -> Stamp:
    stat = file.stat()
    return str(file), stat.st_ino, stat.st_size, stat.st_mtime_ns
