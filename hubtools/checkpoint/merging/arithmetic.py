"""W + scaling·(B·A) in float32, rounded once to W's own dtype: bit for bit what PEFT does on a CPU.

Works on blocks of rows, so that memory does not depend on the matrix. Never on a few rows of a
larger matrix: BLAS has other kernels for vectors and slivers, which add up in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubtools.errors import EnvironmentFailure

Floats = NDArray[np.float32]
Gemm = Callable[[Floats, Floats, Floats], None]

_BLOCK_ELEMENTS = 1 << 18
FEW_ROWS = 16
_STORED: dict[str, Any] = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
# Exponent bits: all of them set means infinite or not a number.
_EXPONENT: dict[str, Any] = {
    "F32": np.uint32(0x7F800000),
    "F16": np.uint16(0x7C00),
    "BF16": np.uint16(0x7F80),
}


def row_blocks(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Cut `rows` into blocks of about 256 Ki elements, none of fewer than 16 rows."""
    step = max(FEW_ROWS, _BLOCK_ELEMENTS // max(columns, 1))
    start = 0
    while start < rows:
        stop = min(start + step, rows)
        if rows - stop < FEW_ROWS:
            stop = rows
        yield start, stop
        start = stop


def to_float32(data: bytes | bytearray | memoryview, dtype: str, shape: tuple[int, ...]) -> Floats:
    """Little-endian `F32`, `F16` or `BF16` bytes as float32 of this shape (exact)."""
    stored: NDArray[Any] = np.frombuffer(data, _STORED[dtype]).reshape(shape)
    wide: NDArray[Any] = stored.astype(np.uint32 if dtype == "BF16" else np.float32)
    if dtype == "BF16":
        wide <<= 16
    return wide.view(np.float32)


class BlockMerger:
    """Adds B·A to blocks of rows, in place, reusing its scratch memory.

    Args:
        dtype: of W: `F32`, `F16` or `BF16`.
        gemm: writes its first argument times its second into the third, in float32.
    """

    def __init__(self, dtype: str, gemm: Gemm) -> None:
        self._dtype = dtype
        self._gemm = gemm
        self._delta = np.zeros(0, np.float32)
        self._wide = np.zeros(0, np.float32)

    def add(self, block: NDArray[np.uint8], b: Floats, a: Floats, scaling: float) -> int:
        """Change `block`, the bytes of W [len(b), in].

        Returns:
            how many elements have another value now.

        Raises:
            FloatingPointError: a result is infinite or not a number.
        """
        rows, columns = b.shape[0], a.shape[1]
        count = rows * columns
        if self._delta.size < count:
            self._delta = np.zeros(count, np.float32)
            self._wide = np.zeros(count, np.float32)
        delta, wide = self._delta[:count], self._wide[:count]
        stored: NDArray[Any] = block.view(_STORED[self._dtype])
        self._gemm(b, a, delta.reshape(rows, columns))
        delta *= np.float32(scaling)
        if self._dtype == "BF16":
            wide.view(np.uint16)[1::2] = stored  # the low halves stay zero
            delta += wide
            merged: NDArray[Any] = self._rounded(delta, wide)
        else:
            delta += stored
            merged = delta if self._dtype == "F32" else delta.astype(np.float16)
        exponent = _EXPONENT[self._dtype]
        bits: NDArray[Any] = merged.view(exponent.dtype)
        old: NDArray[Any] = stored.view(exponent.dtype)
        if (bits & exponent).max() == exponent:
            raise FloatingPointError
        moved = int(np.count_nonzero(bits != old))
        old[...] = bits
        return moved

    @staticmethod
    def _rounded(exact: Floats, scratch: Floats) -> NDArray[np.uint16]:
        # Round to nearest even on the bits: add 0x7FFF plus the lowest bit that stays.
        bits, work = exact.view(np.uint32), scratch.view(np.uint32)
        np.right_shift(bits, 16, out=work)
        work &= 1
        work += 0x7FFF
        bits += work
        work[...] = 0
        return bits.view(np.uint16)[1::2].copy()


def gemm_of(engine: str) -> Gemm:
    """The matrix product of `numpy` or `torch`, single-threaded.

    Raises:
        EnvironmentFailure: HT123 when torch is needed and not installed.
    """
    if engine == "numpy":
        return _numpy_product
    try:
        import torch
    except ImportError as error:
        raise EnvironmentFailure(
            "HT123",
            "torch is needed to merge an adapter of this rank or width exactly as PEFT does",
            detail=("Nothing was written.",),
            next="pip install 'hf-hubtools[merge]'",
        ) from error
    torch.set_num_threads(1)

    def product(b: Floats, a: Floats, out: Floats) -> None:
        torch.mm(torch.from_numpy(b), torch.from_numpy(a), out=torch.from_numpy(out))

    return product


def _numpy_product(b: Floats, a: Floats, out: Floats) -> None:
    np.matmul(b, a, out=out)
