"""The adapter's matrices, read when they are needed and forgotten soon after.

An expert's factor is cut from one tensor that holds those of all experts, so the last tensors are
kept: each is read once.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from pathlib import Path
from threading import Lock

import numpy as np

from hubtools.checkpoint.aligned import AlignedFile, aligned_buffer
from hubtools.checkpoint.merging.arithmetic import Floats, stored_array, to_float32
from hubtools.checkpoint.merging.recipe import Factor, Stored

_KEPT_BYTES = 8 << 20
_KEPT_AT_LEAST = 4  # A and B of both parameters of an expert, whose names alternate in a file


class Factors:
    """Reads stored adapter tensors as float32; for several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._files: dict[Path, AlignedFile] = {}
        self._kept: OrderedDict[tuple[Path, str], Floats] = OrderedDict()
        self._bytes = 0

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.__exit__(None, None, None)

    def matrix(self, factor: Factor) -> Floats:
        """What `factor` cuts out, contiguous."""
        return np.ascontiguousarray(self.tensor(factor.stored)[factor.rows, factor.columns])

    def vector(self, stored: Stored) -> Floats:
        """All numbers of a tensor."""
        return self.tensor(stored).reshape(-1)

    def tensor(self, stored: Stored) -> Floats:
        """A tensor as (first dimension, all others)."""
        key = stored.path, stored.entry.name
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                found = self._kept[key] = self._read(stored)
                self._bytes += found.nbytes
                while self._bytes > _KEPT_BYTES and len(self._kept) > _KEPT_AT_LEAST:
                    self._bytes -= self._kept.popitem(last=False)[1].nbytes
            self._kept.move_to_end(key)
            return found

    def _read(self, stored: Stored) -> Floats:
        entry = stored.entry
        if stored.path not in self._files:
            self._files[stored.path] = AlignedFile(stored.path)
        size = entry.end - entry.begin
        data = self._files[stored.path].read(aligned_buffer(size), entry.begin, size)
        first = entry.shape[0] if entry.shape else 1
        rest = math.prod(entry.shape[1:])
        if entry.dtype == "F32" and data.ctypes.data % 4 == 0:
            return stored_array(data, "F32").reshape(first, rest)
        return to_float32(data, entry.dtype, (first, rest))
