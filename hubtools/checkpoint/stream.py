"""A file written and hashed on a thread of its own, from a small pool of buffers.

The caller fills one buffer while the last ones are hashed and written: hashing costs no second
pass, and memory stays at a few buffers whatever the size of the file.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from queue import Queue
from threading import Thread
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from hubtools.files import disk_error

Buffer = NDArray[np.uint8]
_BUFFERS = 4


class HashedFile:
    """Writes `path` in order.

    Args:
        path: must not exist.
        block: largest number of bytes in one `send`.

    Raises (from every method):
        EnvironmentFailure: HT901 when the disk is full or the file cannot be written.
    """

    def __init__(self, path: Path, block: int) -> None:
        self._path = path
        self._free: Queue[Buffer] = Queue()
        self._filled: Queue[tuple[Buffer, int] | None] = Queue()
        for _ in range(_BUFFERS):
            self._free.put(np.empty(block, np.uint8))
        self._digest = hashlib.sha256()
        self._error: OSError | None = None
        self.size = 0
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except OSError as error:
            raise disk_error(error, path) from error
        self._thread = Thread(target=self._work, name=f"write {path.name}", daemon=True)
        self._thread.start()

    def __enter__(self) -> HashedFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread.is_alive():
            self._filled.put(None)
            self._thread.join()
        os.close(self._file)

    def buffer(self) -> Buffer:
        """A buffer to fill; waits until one is written out."""
        buffer = self._free.get()
        self._check()
        return buffer

    def send(self, buffer: Buffer, size: int) -> None:
        """Append the first `size` bytes of a buffer that came from `buffer()`."""
        self._filled.put((buffer, size))
        self.size += size

    def finish(self) -> str:
        """Wait until everything is on the disk.

        Returns:
            sha256 of the file.
        """
        self._filled.put(None)
        self._thread.join()
        self._check()
        try:
            os.fsync(self._file)
        except OSError as error:
            raise disk_error(error, self._path) from error
        return self._digest.hexdigest()

    def _check(self) -> None:
        if self._error is not None:
            raise disk_error(self._error, self._path) from self._error

    def _work(self) -> None:
        while (item := self._filled.get()) is not None:
            buffer, size = item
            if self._error is None:
                data = memoryview(buffer.data)[:size]
                self._digest.update(data)
                try:
                    while data:
                        data = data[os.write(self._file, data) :]
                except OSError as error:
                    self._error = error
            self._free.put(buffer)
