"""Casts of blocks from one float format to another, with what they did counted."""

from __future__ import annotations

from typing import Any

import numpy as np

from hubtools.checkpoint.aligned import Buffer


class Cast:
    """Casts bytes of one dtype to another; round to nearest, ties to even.

    Args:
        source, target: in safetensors' words; equal ones only check.
        block: largest number of source bytes in one call.

    Attributes:
        changed: elements so far whose value is another one than before.
    """

    def __init__(self, source: str, target: str, block: int) -> None:
        import torch

        self._torch = torch
        types = {
            "F64": torch.float64,
            "F32": torch.float32,
            "F16": torch.float16,
            "BF16": torch.bfloat16,
        }
        self._source, self._target = types[source], types[target]
        self._exact = self._source == self._target
        self._widest = torch.promote_types(self._source, self._target)
        self._low_half = (source, target) == ("F32", "BF16")
        count = block // self._source.itemsize
        self._back: Any = (
            None if self._low_half or self._exact else torch.empty(count, dtype=self._widest)
        )
        self.changed = 0

    def size(self, size: int) -> int:
        """Bytes that `size` bytes of the source become."""
        return size // self._source.itemsize * self._target.itemsize

    def check(self, data: Buffer) -> None:
        """Raise FloatingPointError unless every value is finite."""
        low, high = self._torch.aminmax(self._torch.frombuffer(data, dtype=self._source))
        if not bool((low - low == 0) & (high - high == 0)):
            raise FloatingPointError("NaN or infinity")

    def cast(self, data: Buffer, out: Buffer) -> Buffer:
        """Cast `data` into `out`; the part of it that was filled.

        Raises:
            FloatingPointError: a value is not finite, or is too large for the target.
        """
        torch = self._torch
        self.check(data)
        part = out[: self.size(data.size)]
        before = torch.frombuffer(data, dtype=self._source)
        after = torch.frombuffer(part, dtype=self._target)
        after.copy_(before)
        if self._low_half:
            self.changed += int(np.count_nonzero(data.view(np.uint32) & np.uint32(0xFFFF)))
        else:
            back = self._back[: before.numel()].copy_(after)
            self.changed += int(torch.count_nonzero(back.sub_(before)))
        low, high = torch.aminmax(after)
        if not bool((low - low == 0) & (high - high == 0)):
            raise FloatingPointError("a value is too large for the target dtype")
        return part
