"""A file hashed and written on threads of their own, while the caller makes the next bytes.

Hashing costs no second pass, and memory stays at a few buffers whatever the size of the file. Where
the file system can, writes go around the page cache, which costs more than the disk itself on many
machines.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
from contextlib import suppress
from pathlib import Path
from queue import Queue
from threading import Thread

from hubtools.checkpoint.aligned import DIRECT, Buffer, aligned_buffer
from hubtools.files import disk_error

_BUFFERS = 4
_WINDOWS = 2
_WINDOW = 4 << 20  # a multiple of every file system's block


class HashedFile:
    """Writes `path` in order: fill `buffer()`, `send` it, at the end `finish`.

    Args:
        path: must not exist.
        block: largest number of bytes in one `send`. Buffers are page-aligned and a little larger:
            made for `AlignedFile.read` of as many bytes.

    Raises (from every method):
        EnvironmentFailure: HT901 when the disk is full or the file cannot be written.
    """

    def __init__(self, path: Path, block: int) -> None:
        self.size = 0
        self._path = path
        self._digest = hashlib.sha256()
        self._error: OSError | None = None
        self._free: Queue[Buffer] = Queue()
        self._filled: Queue[tuple[Buffer, Buffer] | None] = Queue()
        self._empty: Queue[memoryview] = Queue()
        self._full: Queue[tuple[memoryview, int] | None] = Queue()
        for _ in range(_BUFFERS):
            self._free.put(aligned_buffer(block))
        for _ in range(_WINDOWS):
            self._empty.put(memoryview(mmap.mmap(-1, _WINDOW)))  # page-aligned
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except OSError as error:
            raise disk_error(error, path) from error
        with suppress(OSError):  # not every file system can
            fcntl.fcntl(self._file, fcntl.F_SETFL, DIRECT)
        self._threads = [Thread(target=work, daemon=True) for work in (self._hash, self._write)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> HashedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._join()
        os.close(self._file)

    def buffer(self) -> Buffer:
        """A buffer to fill; waits until one has been hashed."""
        buffer = self._free.get()
        self._check()
        return buffer

    def send(self, buffer: Buffer, size: int) -> None:
        """Append the first `size` bytes of a buffer that came from `buffer()`."""
        self.send_part(buffer, buffer[:size])

    def send_part(self, buffer: Buffer, part: Buffer) -> None:
        """Append `part`, which lies in `buffer`."""
        self._filled.put((buffer, part))
        self.size += part.size

    def give_back(self, buffer: Buffer) -> None:
        """Return a buffer unused."""
        self._free.put(buffer)

    def finish(self) -> str:
        """Wait until everything is on the disk.

        Returns:
            sha256 of the file.
        """
        self._join()
        self._check()
        try:
            os.fsync(self._file)
        except OSError as error:
            raise disk_error(error, self._path) from error
        return self._digest.hexdigest()

    def _join(self) -> None:
        self._filled.put(None)
        for thread in self._threads:
            thread.join()

    def _check(self) -> None:
        if self._error is not None:
            raise disk_error(self._error, self._path) from self._error

    def _hash(self) -> None:
        window, used = self._empty.get(), 0
        while (item := self._filled.get()) is not None:
            buffer, part = item
            data = memoryview(part.data)
            self._digest.update(data)
            while data:
                some = data[: _WINDOW - used]
                window[used : used + len(some)] = some
                data, used = data[len(some) :], used + len(some)
                if used == _WINDOW:
                    self._full.put((window, used))
                    window, used = self._empty.get(), 0
            self._free.put(buffer)
        self._full.put((window, used))
        self._full.put(None)

    def _write(self) -> None:
        while (item := self._full.get()) is not None:
            window, size = item
            if self._error is None:
                try:
                    self._write_all(window[:size])
                except OSError as error:
                    self._error = error
            self._empty.put(window)

    def _write_all(self, data: memoryview) -> None:
        if len(data) < _WINDOW:
            fcntl.fcntl(self._file, fcntl.F_SETFL, 0)  # the tail is not a whole block
        while data:
            try:
                data = data[os.write(self._file, data) :]
            except OSError as error:
                direct = fcntl.fcntl(self._file, fcntl.F_GETFL) & DIRECT
                if error.errno != errno.EINVAL or not direct:
                    raise
                fcntl.fcntl(self._file, fcntl.F_SETFL, 0)
