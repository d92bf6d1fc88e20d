"""Writes weight files by their recipes, at the speed of the disk.

Two threads read, change and hand over pieces of about 4 MiB; two more hash and write them in order
(`HashedFile`). numpy, BLAS, hashlib and the disk all work without holding the interpreter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import numpy as np

from hubtools.checkpoint import headers
from hubtools.checkpoint.aligned import AlignedFile, Buffer, aligned_buffer
from hubtools.checkpoint.merging.arithmetic import stored_array
from hubtools.checkpoint.merging.factors import Factors
from hubtools.checkpoint.merging.ops import Place, Prepared, Worker
from hubtools.checkpoint.merging.pieces import UNIT, Piece, Unit, matrices, units_of
from hubtools.checkpoint.merging.product import Gemm
from hubtools.checkpoint.merging.recipe import OutputFile, Stored
from hubtools.checkpoint.merging.written import Sums, Written
from hubtools.checkpoint.stream import HashedFile
from hubtools.errors import CheckError
from hubtools.progress import Progress

_WORKERS = 2
_STEP = 16 << 20


class Engine:
    """Writes the files of one layout, one after the other.

    Args:
        base: tensors by name: what is replaced is compared with them.
        home: the base's files: what comes from elsewhere is a replacement.
        gemm: see `gemm_of`.
        total: bytes of tensor data in all files.
        label: for the progress.
        progress: told the bytes written so far.
    """

    def __init__(
        self,
        base: Mapping[str, Stored],
        home: frozenset[Path],
        gemm: Gemm,
        *,
        total: int,
        label: str,
        progress: Progress,
    ) -> None:
        self._base, self._home = base, home
        self._gemm = gemm
        self._total, self._label, self._progress = total, label, progress
        self._done = 0

    def skip(self, file: OutputFile) -> None:
        """Count a file that an earlier run finished."""
        self._advance(sum(output.bytes for output in file.outputs))

    def write(self, file: OutputFile, path: Path) -> Written:
        """Write one file to `path`, which must not exist, down to the disk.

        Raises:
            CheckError: HT117 when a value is infinite or not a number.
            EnvironmentFailure: HT118 when an input cannot be read, HT901 when `path` cannot be
                written.
        """
        units = list(units_of(file, self._home))
        block = max((max(unit.read, unit.size) for unit in units), default=0)
        with ExitStack() as stack:
            factors = Factors()
            stack.callback(factors.close)
            paths = {unit.pieces[0].stored.path for unit in units} | self._replaced(file)
            sources = {path: stack.enter_context(AlignedFile(path)) for path in paths}
            head = header_bytes(file)
            target = stack.enter_context(HashedFile(path, max(block, UNIT, len(head))))
            first = target.buffer()
            first[: len(head)] = np.frombuffer(head, np.uint8)
            target.send(first, len(head))
            line = _Line(self, units, target)
            prepared = Prepared(factors)
            hands = [
                _Hand(self._gemm, prepared, sources, self._base, self._home)
                for _ in range(_WORKERS)
            ]
            line.run(hands)
            return Written(target.finish(), target.size, line.sums)

    def _replaced(self, file: OutputFile) -> set[Path]:
        others = [o.name for o in file.outputs if o.source.path not in self._home]
        return {self._base[name].path for name in others if name in self._base}

    def _advance(self, size: int) -> None:
        before, self._done = self._done, self._done + size
        if self._done // _STEP != before // _STEP or self._done == self._total:
            self._progress(self._label, self._done, self._total, "bytes")


class _Line:
    """Hands out units in order, and takes them back in order."""

    def __init__(self, engine: Engine, units: list[Unit], target: HashedFile) -> None:
        self._engine, self._target = engine, target
        self._units: Iterator[tuple[int, Unit]] = iter(enumerate(units))
        self._lock = Lock()
        self._next = 0
        self._ready: dict[int, tuple[Unit, Buffer, Buffer, list[Sums]]] = {}
        self._failure: BaseException | None = None
        self.sums: dict[str, Sums] = {}

    def run(self, hands: list[_Hand]) -> None:
        threads = [Thread(target=self._work, args=(hand,), daemon=True) for hand in hands]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _work(self, hand: _Hand) -> None:
        buffer: Buffer | None = None
        try:
            # A buffer first, then a unit: whoever has the next one to write can always go on.
            while True:
                buffer = self._target.buffer()
                with self._lock:
                    number, unit = next(self._units, (-1, None))
                    if unit is None or self._failure is not None:
                        return
                part, sums = hand.make(unit, buffer)
                with self._lock:
                    self._ready[number] = unit, buffer, part, sums
                    buffer = None
                    self._send()
        except BaseException as error:
            with self._lock:
                self._failure = self._failure or error
        finally:
            with self._lock:
                if buffer is not None:
                    self._target.give_back(buffer)
                if self._failure is not None:
                    for _, waiting, _, _ in self._ready.values():
                        self._target.give_back(waiting)
                    self._ready.clear()

    def _send(self) -> None:
        while self._next in self._ready and self._failure is None:
            unit, buffer, part, sums = self._ready.pop(self._next)
            self._target.send_part(buffer, part)
            for piece, some in zip(unit.pieces, sums, strict=True):
                if piece.output is not None:
                    self.sums.setdefault(piece.output.name, Sums()).add(some)
            self._engine._advance(part.size)
            self._next += 1


class _Hand:
    """One thread's work on a unit."""

    def __init__(
        self,
        gemm: Gemm,
        prepared: Prepared,
        sources: Mapping[Path, AlignedFile],
        base: Mapping[str, Stored],
        home: frozenset[Path],
    ) -> None:
        self._worker = Worker(gemm, prepared)
        self._sources, self._base, self._home = sources, base, home

    def make(self, unit: Unit, buffer: Buffer) -> tuple[Buffer, list[Sums]]:
        """Fill `buffer`; returns the part of it that comes out, and what happened to each piece."""
        source = self._sources[unit.pieces[0].stored.path]
        with np.errstate(all="ignore"):
            if unit.in_place:
                data = source.read(buffer, unit.begin, unit.read)
                offsets = [piece.begin - unit.begin for piece in unit.pieces]
                sums = [
                    self._piece(piece, data[at : at + piece.size], data[at : at + piece.size])
                    for piece, at in zip(unit.pieces, offsets, strict=True)
                ]
                return data, sums
            (piece,) = unit.pieces
            data = source.read(aligned_buffer(unit.read), unit.begin, unit.read)
            out = buffer[: unit.size]
            return out, [self._piece(piece, data, out)]

    def _piece(self, piece: Piece, data: Buffer, out: Buffer) -> Sums:
        output = piece.output
        if output is None:
            return Sums()
        place = Place(piece.page, piece.start, piece.stop)
        shape = piece.stop - piece.start, matrices(output)[2]
        dtype = piece.stored.entry.dtype
        block = stored_array(out, output.dtype).reshape(shape)
        try:
            if output.source.path in self._home or output.ops:
                if dtype == output.dtype:
                    return self._worker.change(block, dtype, output.ops, place)
                values = stored_array(data, dtype).reshape(shape)
                return self._worker.convert(values, dtype, block, output.dtype, output.ops, place)
            return self._replace(piece, data, block)
        except FloatingPointError as error:
            rows = f"rows {piece.start} to {piece.stop - 1}"
            page = f" of matrix {piece.page}" if matrices(output)[0] > 1 else ""
            raise CheckError(
                "HT117",
                f"merged values of {output.name} are not finite ({rows}{page})",
                where=str(output.source.path),
                detail=("Adapter or base hold infinities or NaN, or the sum overflows.",),
                next="choose an earlier step of the run, before training diverged",
            ) from error

    def _replace(self, piece: Piece, data: Buffer, block: Any) -> Sums:
        """Take a tensor that was trained whole, and count what differs from the base's."""
        output = piece.output
        assert output is not None
        dtype = piece.stored.entry.dtype
        if dtype != output.dtype:
            values = stored_array(data, dtype).reshape(block.shape)
            place = Place(piece.page, piece.start, piece.stop)
            self._worker.convert(values, dtype, block, output.dtype, (), place)
        known = self._base.get(output.name)
        if known is None or known.entry.shape != output.shape:
            sums = self._worker.change(block, output.dtype, (), Place(0, 0, 0))
            return Sums(block.size, block.size, sums.weight, 0.0)
        entry = known.entry
        width = (entry.end - entry.begin) // entry.elements * block.shape[1]
        rows = range(piece.start, piece.stop)
        size = len(rows) * width
        before = self._sources[known.path].read(
            aligned_buffer(size), entry.begin + rows.start * width, size
        )
        other = stored_array(before, entry.dtype).reshape(block.shape)
        return self._worker.compare(block, output.dtype, other, entry.dtype)


def header_bytes(file: OutputFile) -> bytes:
    """The header of a file: its model's own bytes, or one in the same order as the outputs."""
    if file.like is not None:
        with file.like.path.open("rb") as stream:
            return stream.read(file.like.data_start)
    return headers.header_bytes((o.name, o.dtype, o.shape, o.bytes) for o in file.outputs)
