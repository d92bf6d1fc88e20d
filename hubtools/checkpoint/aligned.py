"""Reading weight files around the page cache, which costs more than the disk on many machines.

Such reads begin and end at whole blocks of memory and disk; where a file system cannot do them
(tmpfs, some network ones), the same bytes come the usual way.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hubtools.errors import EnvironmentFailure

Buffer = NDArray[np.uint8]

BLOCK = 4096  # a multiple of every file system's block
DIRECT = getattr(os, "O_DIRECT", 0)


def aligned_buffer(size: int) -> Buffer:
    """Page-aligned memory for `size` bytes of a file, wherever in it they begin."""
    whole = -(-size // BLOCK) * BLOCK + BLOCK
    return np.frombuffer(mmap.mmap(-1, whole), np.uint8)


class AlignedFile:
    """A file read at given places, by several threads at once.

    Raises (from every method):
        EnvironmentFailure: HT118 when the file cannot be read, or is shorter than it was.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            try:
                self._file = os.open(path, os.O_RDONLY | DIRECT)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self._file = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from error

    def __enter__(self) -> AlignedFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def read(self, buffer: Buffer, begin: int, size: int) -> Buffer:
        """Read bytes `begin` to `begin + size` into a buffer of `aligned_buffer(size)`.

        Returns:
            the part of `buffer` that holds them.
        """
        start = begin // BLOCK * BLOCK
        wanted = begin + size - start
        view = memoryview(buffer.data)[: -(-wanted // BLOCK) * BLOCK]
        done = 0
        while done < wanted:
            done += self._some(view[done:], start + done)
        return buffer[begin - start : wanted]

    def _some(self, view: memoryview, offset: int) -> int:
        try:
            count = os.preadv(self._file, [view], offset)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._direct():
                raise self._lost(error.strerror or str(error)) from error
            fcntl.fcntl(self._file, fcntl.F_SETFL, 0)
            return self._some(view, offset)
        if count == 0:
            raise self._lost("it became shorter while it was read")
        return count

    def _direct(self) -> bool:
        return bool(DIRECT and fcntl.fcntl(self._file, fcntl.F_GETFL) & DIRECT)

    def _lost(self, why: str) -> EnvironmentFailure:
        return EnvironmentFailure(
            "HT118",
            f"a weight file cannot be read: {why}",
            where=str(self._path),
            detail=("Nothing that looks whole was left behind.",),
            next="wait until nothing writes there any more, then run the same command again",
        )
