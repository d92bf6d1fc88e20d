"""Files that are whole or absent: atomic writes, space checks, the lock that names its owner."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hubtools.errors import EnvironmentFailure
from hubtools.sizes import size_words


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` so that a reader sees the old file or the new one, also after a power cut.

    Raises:
        EnvironmentFailure: HT901 when the disk is full, the quota spent, or the folder read-only.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise disk_error(error, path) from error


def write_json(path: Path, value: Any) -> None:
    """`write_atomic` of indented, key-sorted JSON with a final newline."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_atomic(path, text.encode() + b"\n")


def sync_directory(path: Path) -> None:
    """Make a rename in `path` durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free some space"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "fix the permission"),
}


def disk_error(
    error: OSError, path: Path | str, *, kept: str = "Finished work is kept."
) -> EnvironmentFailure:
    """Name the usual write failures; the rest keeps the system's own words.

    Args:
        error: what the system said.
        path: what was to be written.
        kept: what became of the work so far.
    """
    known = {
        errno.ENOSPC: "disk full",
        errno.EDQUOT: "disk quota spent",
        errno.EROFS: "read-only file system",
        errno.EACCES: "no permission to write",
        errno.EFBIG: "file size limit reached",
    }
    what = known.get(error.errno or 0, error.strerror or str(error))
    return EnvironmentFailure(
        "HT901",
        f"cannot write: {what}",
        where=str(path),
        detail=(kept,),
        next=f"{_REMEDIES.get(error.errno or 0, 'choose another place')}, then run the same command"
        " again",
    )


def ensure_space(path: Path, need: int, what: str) -> None:
    """Refuse early when `need` bytes do not fit on the disk that holds `path`.

    Raises:
        EnvironmentFailure: HT902, with both figures.
    """
    folder = path
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if need > free:
        raise EnvironmentFailure(
            "HT902",
            f"not enough disk space for {what}: {size_words(need)} needed, {size_words(free)} free",
            where=str(path),
            next="free some space or choose another place, then run the same command again",
        )


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold an exclusive lock file that names its owner; the kernel drops it if we die.

    Raises:
        EnvironmentFailure: HT903 when another live process holds it, HT901 when it cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("a+")
    except OSError as error:
        raise disk_error(error, path) from error
    with lock as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            stream.seek(0)
            owner = stream.read().strip() or "another process"
            raise EnvironmentFailure(
                "HT903",
                f"{what} is in use by {owner}",
                where=str(path),
                detail=("This run changed nothing.",),
                next="wait for it to end, then run the same command again (done work is cached)",
            ) from error
        stream.seek(0)
        stream.truncate()
        stream.write(f"pid {os.getpid()} on {socket.gethostname()}")
        stream.flush()
        yield
