"""Numbers as they are stored (`F32`, `F16`, `BF16`), changed in float32, rounded to nearest even.

Bit for bit what PEFT's torch does on a CPU. Works through a block in pieces that fit a core's
cache: there the passes over the elements cost a third of what they cost in memory.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubtools.checkpoint.merging.written import Sums

Floats = NDArray[np.float32]
Stored = NDArray[Any]

STORED: dict[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,
}
_PIECE = 1 << 17
# With both sums of squares below this, no element of a sum reaches the dtype's largest value.
_SAFE = {"F64": 1e36, "F32": 1e36, "BF16": 1e36, "F16": 1e9}


def stored_array(data: bytes | bytearray | memoryview | NDArray[np.uint8], dtype: str) -> Stored:
    """Little-endian bytes as an array of their dtype; bfloat16 as its 16 bits."""
    return np.frombuffer(data, STORED[dtype])


def bits(stored: Stored) -> Stored:
    """The same memory as unsigned integers: equal bits are equal values."""
    return stored.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[stored.dtype.itemsize])


def widen(stored: Stored, dtype: str, out: Floats) -> None:
    """Write the values as float32 to `out` (exact, but for `F64`)."""
    if dtype == "BF16":
        wide = out.view(np.uint32)
        np.copyto(wide, stored)
        np.left_shift(wide, 16, out=wide)
    else:
        np.copyto(out, stored, casting="same_kind")


def to_float32(
    data: bytes | bytearray | memoryview | NDArray[np.uint8], dtype: str, shape: tuple[int, ...]
) -> Floats:
    """Stored bytes as a float32 array of this shape."""
    stored = stored_array(data, dtype)
    out = np.empty(stored.shape, np.float32)
    widen(stored, dtype, out)
    return out.reshape(shape)


def square(values: Floats) -> float:
    """‖values‖²; infinite or no number when a value is."""
    found = float(np.dot(values, values))
    if math.isfinite(found):
        return found
    wide = values.astype(np.float64)
    return float(np.dot(wide, wide))


class Kernel:
    """Element by element work on flat contiguous arrays of one dtype; not for two threads at once.

    Every method raises FloatingPointError when a result is infinite or not a number.
    """

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self._wide = np.empty(_PIECE, np.float32)
        self._work = np.empty(_PIECE, np.uint32)
        self._out = np.empty(_PIECE, STORED[dtype])
        self._flags = np.empty(_PIECE, np.bool_)

    @np.errstate(all="ignore")
    def add(
        self, stored: Stored, delta: Floats, *, twice: bool = False, asked: Floats | None = None
    ) -> Sums:
        """W ← W + Δ, in place; `delta` is used up.

        Args:
            stored: W.
            delta: Δ, of the same size.
            twice: round Δ to W's dtype before it is added.
            asked: where Δ is added up.
        """
        sums = Sums()
        for start in range(0, stored.size, _PIECE):
            piece = slice(start, start + _PIECE)
            if asked is not None:
                asked[piece] += delta[piece]
            sums.add(self._add(stored[piece], delta[piece], twice))
        return sums

    @np.errstate(all="ignore")
    def put(self, stored: Stored, values: Floats, *, asked: Floats | None = None) -> Sums:
        """W ← values, rounded once, in place; `values` is used up. Arguments as for `add`."""
        sums = Sums()
        for start in range(0, stored.size, _PIECE):
            piece = slice(start, start + _PIECE)
            old, new = stored[piece], values[piece]
            wide = self._wide[: old.size]
            widen(old, self._dtype, wide)
            weight = square(wide)
            np.subtract(new, wide, out=wide)
            if asked is not None:
                asked[piece] += wide
            delta = square(wide)
            sums.add(Sums(old.size, self._replace(old, new, weight + delta), delta, weight))
        return sums

    @np.errstate(all="ignore")
    def cast(self, values: Floats, out: Stored) -> None:
        """Round float32 values to `out`; `values` is used up. Infinities stay what they are."""
        for start in range(0, out.size, _PIECE):
            new, place = values[start : start + _PIECE], out[start : start + _PIECE]
            finite = bool(np.isfinite(new).all())
            strange = None if finite else ~np.isfinite(new)
            kept = None if strange is None else new[strange]
            self._narrow(new, place)
            if strange is not None and kept is not None:
                place[strange] = kept if self._dtype != "BF16" else _strange_bfloat16(kept)
            if not self._finite(place if strange is None else place[~strange]):
                raise FloatingPointError

    @np.errstate(all="ignore")
    def weigh(self, stored: Stored) -> Sums:
        """Count elements that stay as they are."""
        sums = Sums(stored.size)
        for start in range(0, stored.size, _PIECE):
            old = stored[start : start + _PIECE]
            wide = self._wide[: old.size]
            widen(old, self._dtype, wide)
            sums.weight += square(wide)
        if not math.isfinite(sums.weight):
            raise FloatingPointError
        return sums

    def _add(self, stored: Stored, delta: Floats, twice: bool) -> Sums:
        wide = self._wide[: stored.size]
        widen(stored, self._dtype, wide)
        squares = square(delta), square(wide)
        if twice and self._dtype != "F32":
            if not math.isfinite(squares[0]):
                raise FloatingPointError
            self._round(delta)
        np.add(delta, wide, out=delta)
        return Sums(stored.size, self._replace(stored, delta, sum(squares)), *squares)

    def _replace(self, stored: Stored, values: Floats, squares: float) -> int:
        """Store the values, whose finiteness follows from sums of squares in the usual case."""
        safe = squares < _SAFE[self._dtype]
        if not safe and not np.isfinite(values).all():
            raise FloatingPointError
        new = self._out[: stored.size]
        self._narrow(values, new)
        if not safe and not self._finite(new):
            raise FloatingPointError
        flags = self._flags[: stored.size]
        np.not_equal(bits(new), bits(stored), out=flags)
        stored[...] = new
        return int(np.count_nonzero(flags))

    def _narrow(self, values: Floats, out: Stored) -> None:
        if self._dtype == "BF16":
            wide = self._up(values)
            np.right_shift(wide, 16, out=wide)
            np.copyto(out, wide, casting="unsafe")
        else:
            np.copyto(out, values, casting="same_kind")

    def _round(self, values: Floats) -> None:
        """Round float32 values to the dtype, in place."""
        if self._dtype == "BF16":
            wide = self._up(values)
            np.bitwise_and(wide, np.uint32(0xFFFF0000), out=wide)
        else:
            out = self._out[: values.size]
            np.copyto(out, values, casting="same_kind")
            np.copyto(values, out)

    def _up(self, values: Floats) -> NDArray[np.uint32]:
        # To nearest even on the bits: add 0x7FFF plus the lowest bit that stays.
        wide, work = values.view(np.uint32), self._work[: values.size]
        np.right_shift(wide, 16, out=work)
        np.bitwise_and(work, 1, out=work)
        np.add(wide, work, out=wide)
        np.add(wide, 0x7FFF, out=wide)
        return wide

    def _finite(self, stored: Stored) -> bool:
        if self._dtype != "BF16":
            return bool(np.isfinite(stored).all())
        return not bool(((stored & 0x7F80) == 0x7F80).any())


def _strange_bfloat16(values: Floats) -> NDArray[np.uint16]:
    high: NDArray[np.uint16] = (values.view(np.uint32) >> 16).astype(np.uint16)
    high[np.isnan(values)] |= 0x40  # its payload may lie in the half that is cut off
    return high
