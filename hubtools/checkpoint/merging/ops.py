"""Recipes at work on one block of rows.

Each operation rounds on its own, as PEFT does when adapters are merged in turn.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubtools.checkpoint.merging.arithmetic import (
    STORED,
    Floats,
    Kernel,
    Stored,
    bits,
    square,
    widen,
)
from hubtools.checkpoint.merging.factors import Factors
from hubtools.checkpoint.merging.product import Gemm
from hubtools.checkpoint.merging.recipe import AddVector, LowRank, Op, SetRows
from hubtools.checkpoint.merging.written import Sums

_READY = 6


@dataclass(frozen=True, slots=True)
class Place:
    """Which part of an output a block is: some rows of one of its matrices."""

    page: int
    start: int
    stop: int


class Prepared:
    """B and A of the operations at work now, cut and contiguous; shared by the threads."""

    def __init__(self, factors: Factors) -> None:
        self.factors = factors
        self._lock = Lock()
        self._ready: OrderedDict[int, tuple[LowRank, Floats, Floats]] = OrderedDict()

    def pair(self, op: LowRank) -> tuple[Floats, Floats]:
        """(B, A)."""
        with self._lock:
            found = self._ready.get(id(op))
            if found is None:
                found = op, self.factors.matrix(op.b), self.factors.matrix(op.a)
                self._ready[id(op)] = found
                if len(self._ready) > _READY:
                    self._ready.popitem(last=False)
            return found[1:]


class Worker:
    """Changes blocks; one for each thread, because it keeps scratch memory.

    Every method raises FloatingPointError when a result is infinite or not a number.
    """

    def __init__(self, gemm: Gemm, prepared: Prepared) -> None:
        self._gemm = gemm
        self._prepared = prepared
        self._kernels: dict[str, Kernel] = {}
        self._scratch = np.empty(0, np.float32)

    def change(self, block: Stored, dtype: str, ops: tuple[Op, ...], place: Place) -> Sums:
        """Apply `ops` to `block` [rows, columns], stored as `dtype`, in place."""
        kernel = self._kernel(dtype)
        ops = tuple(op for op in ops if _touches(op, place))
        if not ops:
            return kernel.weigh(block.reshape(-1))
        if len(ops) == 1 and isinstance(op := ops[0], LowRank) and _whole(op, block):
            if op.magnitude is not None:
                return kernel.put(block.reshape(-1), self._scaled(op, block, dtype, place))
            delta = self._delta(op, block.shape, place)
            return kernel.add(block.reshape(-1), delta, twice=op.rounding == "twice")
        return self.convert(block, dtype, block, dtype, ops, place)

    def convert(
        self,
        source: Stored,
        source_dtype: str,
        block: Stored,
        dtype: str,
        ops: tuple[Op, ...],
        place: Place,
    ) -> Sums:
        """Write `source`, with `ops` applied, to `block`, which may be the same memory.

        The first operation works on the values as they are in `source`, so that they are rounded
        once, unless it is one that rounds its change first.
        """
        kernel = self._kernel(dtype)
        original = np.empty(source.shape, np.float32)
        widen(source, source_dtype, original)
        plain = np.empty(block.shape, STORED[dtype])
        kernel.cast(original.flatten(), plain.reshape(-1))
        if not ops:
            block[...] = plain
            return Sums(block.size)
        asked = np.zeros(block.shape, np.float32)
        ops = tuple(op for op in ops if _touches(op, place))
        first = ops[0] if source_dtype != dtype and ops else None
        if first is None or (isinstance(first, LowRank) and first.rounding == "twice"):
            block[...] = plain
            before = None
        else:
            exact = original.copy()
            self._apply(exact, "F32", first, place, asked, None)
            kernel.cast(exact.reshape(-1), block.reshape(-1))
            before, ops = original, ops[1:]
        for op in ops:
            self._apply(block, dtype, op, place, asked, before)
            before = original
        moved = int(np.count_nonzero(bits(block) != bits(plain)))
        return Sums(block.size, moved, square(asked.reshape(-1)), square(original.reshape(-1)))

    def compare(self, block: Stored, dtype: str, other: Stored, other_dtype: str) -> Sums:
        """Count `block`, which replaces `other`, the base's values of the same shape."""
        new, old = np.empty(block.shape, np.float32), np.empty(block.shape, np.float32)
        widen(block, dtype, new)
        widen(other, other_dtype, old)
        if not (np.isfinite(new).all() and np.isfinite(old).all()):
            raise FloatingPointError
        moved = int(np.count_nonzero(new != old))
        difference = np.subtract(new, old, out=new).reshape(-1)
        return Sums(block.size, moved, square(difference), square(old.reshape(-1)))

    def _apply(
        self,
        block: Stored,
        dtype: str,
        op: Op,
        place: Place,
        asked: Floats,
        before: Floats | None,
    ) -> None:
        """Apply one operation in place.

        The exact changes are added up in `asked`; `before` are the values before any operation,
        when this is not the first.
        """
        kernel = self._kernel(dtype)
        if isinstance(op, SetRows):
            rows = np.array(op.rows)
            inside = np.flatnonzero((rows >= place.start) & (rows < place.stop))
            values = self._prepared.factors.tensor(op.values)[inside]
            chosen: Any = rows[inside] - place.start
        elif isinstance(op, LowRank) and op.magnitude is not None:
            values = self._scaled(op, block, dtype, place, before).reshape(block.shape)
            chosen = slice(None)
        else:
            self._add(kernel, block, op, place, asked)
            return
        part, wanted = block[chosen].flatten(), asked[chosen].flatten()
        kernel.put(part, values.flatten(), asked=wanted)
        block[chosen] = part.reshape(values.shape)
        asked[chosen] = wanted.reshape(values.shape)

    def _add(
        self, kernel: Kernel, block: Stored, op: LowRank | AddVector, place: Place, asked: Floats
    ) -> None:
        if isinstance(op, AddVector):
            bias = self._prepared.factors.vector(op.bias)[place.start : place.stop]
            kernel.add(block.reshape(-1), bias * np.float32(op.scaling), asked=asked.reshape(-1))
            return
        within: tuple[slice, slice] = (slice(None), slice(None))
        if op.rows is not None and op.transposed:
            within = slice(None), slice(*op.rows)
        part, wanted = block[within], asked[within]
        shape, flat, total = part.shape, part.flatten(), wanted.flatten()
        delta = self._delta(op, shape, place)
        kernel.add(flat, delta, twice=op.rounding == "twice", asked=total)
        block[within], asked[within] = flat.reshape(shape), total.reshape(shape)

    def _scaled(
        self,
        op: LowRank,
        block: Stored,
        dtype: str,
        place: Place,
        before: Floats | None = None,
    ) -> Floats:
        """DoRA's new values (m/‖V‖)·(W + Δ): V = W + Δ, or W₀ + Δ after other operations on W₀."""
        import torch

        assert op.magnitude is not None
        values = np.empty(block.shape, np.float32)
        widen(block, dtype, values)
        delta = self._delta(op, block.shape, place).reshape(block.shape)
        values += delta
        normed = values if before is None else np.add(before, delta, out=delta)
        first = op.rows[0] if op.rows is not None else 0
        rows = slice(None) if op.transposed else slice(place.start - first, place.stop - first)
        magnitude = torch.from_numpy(self._prepared.factors.vector(op.magnitude)[rows])
        outputs = torch.from_numpy(normed.T if op.transposed else normed)
        factor = (magnitude / torch.linalg.norm(outputs, dim=1)).numpy()
        values *= factor if op.transposed else factor[:, None]
        return values.reshape(-1)

    def _delta(self, op: LowRank, shape: tuple[int, ...], place: Place) -> Floats:
        """scaling·B·A for a block, as it is stored; valid until the next call."""
        rows, columns = shape
        if self._scratch.size < 2 * rows * columns:
            self._scratch = np.empty(2 * rows * columns, np.float32)
        count = rows * columns
        delta = self._scratch[:count]
        b, a = self._prepared.pair(op)
        if op.transposed:
            product = self._scratch[count : 2 * count].reshape(columns, rows)
            self._gemm(b, a[:, place.start : place.stop], product)
            np.copyto(delta.reshape(rows, columns), product.T)
        else:
            first = op.rows[0] if op.rows is not None else 0
            cut = b[place.start - first : place.stop - first]
            self._gemm(cut, a, delta.reshape(rows, columns))
        if op.scaling != 1:
            delta *= np.float32(op.scaling)
        return delta

    def _kernel(self, dtype: str) -> Kernel:
        if dtype not in self._kernels:
            self._kernels[dtype] = Kernel(dtype)
        return self._kernels[dtype]


def _touches(op: Op, place: Place) -> bool:
    if isinstance(op, SetRows):
        return any(place.start <= row < place.stop for row in op.rows)
    if not isinstance(op, LowRank):
        return True
    if op.page is not None and op.page != place.page:
        return False
    if op.rows is None or op.transposed:
        return True
    return op.rows[0] < place.stop and place.start < op.rows[1]


def _whole(op: LowRank, block: NDArray[Any]) -> bool:
    return op.rows is None or not op.transposed or op.b.shape[0] == block.shape[1]
