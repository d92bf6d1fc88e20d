"""How a weight file is cut into pieces of work: whole blocks of rows, runs of bytes to copy.

Memory then does not depend on the tensors, and a product is never taken over a few rows of a larger
matrix: BLAS has other kernels for slivers, which add up in another order. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from hubtools.checkpoint.headers import BITS
from hubtools.checkpoint.merging.recipe import LowRank, Output, OutputFile, Stored

UNIT = 4 << 20
FEW_ROWS = 16
_BLOCK_ELEMENTS = 1 << 18


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `begin` to `end` of a stored tensor, offsets in its file.

    Args:
        size: bytes that come out.
        output: what is made of them; None for a copy.
        page, start, stop: which matrix of the output, and which of its rows.
    """

    stored: Stored
    begin: int
    end: int
    size: int
    output: Output | None = None
    page: int = 0
    start: int = 0
    stop: int = 0


@dataclass(frozen=True, slots=True)
class Unit:
    """What one worker does at a time: pieces that lie one after the other in one source file.

    Args:
        in_place: whether the bytes read and the bytes written are equally many, piece by piece.
    """

    pieces: tuple[Piece, ...]
    in_place: bool

    @property
    def begin(self) -> int:
        """First byte in the source file."""
        return self.pieces[0].begin

    @property
    def read(self) -> int:
        """Bytes to read."""
        return self.pieces[-1].end - self.begin

    @property
    def size(self) -> int:
        """Bytes that come out."""
        return sum(piece.size for piece in self.pieces)


def row_blocks(start: int, stop: int, columns: int) -> Iterator[tuple[int, int]]:
    """Cut rows into blocks of about 256 Ki elements, none of fewer than 16 rows if all are more."""
    step = max(FEW_ROWS, _BLOCK_ELEMENTS // max(columns, 1))
    while start < stop:
        end = min(start + step, stop)
        if stop - end < FEW_ROWS:
            end = stop
        yield start, end
        start = end


def matrices(output: Output) -> tuple[int, int, int]:
    """An output as (pages, rows, columns): a plain tensor is one page, a vector one column."""
    shape = output.shape
    if any(isinstance(op, LowRank) and op.page is not None for op in output.ops):
        return shape[0], shape[1], math.prod(shape[2:])
    rows = shape[0] if shape else 1
    return 1, rows, math.prod(shape[1:])


def units_of(file: OutputFile, home: frozenset[Path]) -> Iterator[Unit]:
    """All tensor data of a file, in order.

    `home` are the base's files: what comes from elsewhere is compared with the base, not just
    copied.
    """
    waiting: list[Piece] = []
    size = 0
    for piece in _pieces(file, home):
        alone = piece.end - piece.begin != piece.size
        follows = waiting and _follows(waiting[-1], piece)
        if waiting and (alone or not follows or size + piece.size > UNIT):
            yield Unit(tuple(waiting), True)
            waiting, size = [], 0
        if alone:
            yield Unit((piece,), False)
        else:
            waiting.append(piece)
            size += piece.size
    if waiting:
        yield Unit(tuple(waiting), True)


def _follows(last: Piece, piece: Piece) -> bool:
    return last.stored.path == piece.stored.path and last.end == piece.begin


def _pieces(file: OutputFile, home: frozenset[Path]) -> Iterator[Piece]:
    for output in file.outputs:
        entry = output.source.entry
        if output.untouched and output.source.path in home:
            yield from _copies(output.source, entry.begin, entry.end)
        else:
            yield from _blocks(output)


def _copies(stored: Stored, begin: int, end: int) -> Iterator[Piece]:
    while begin < end:
        size = min(UNIT, end - begin)
        yield Piece(stored, begin, begin + size, size)
        begin += size


def _blocks(output: Output) -> Iterator[Piece]:
    entry = output.source.entry
    pages, rows, columns = matrices(output)
    if not rows * columns:
        return
    width, out = columns * BITS[entry.dtype] // 8, columns * BITS[output.dtype] // 8
    for page in range(pages):
        for start, stop in _cuts(output, page, rows, columns):
            begin = entry.begin + (page * rows + start) * width
            end = begin + (stop - start) * width
            size = (stop - start) * out
            yield Piece(output.source, begin, end, size, output, page, start, stop)


def _cuts(output: Output, page: int, rows: int, columns: int) -> Iterator[tuple[int, int]]:
    ops = [op for op in output.ops if isinstance(op, LowRank) and op.page in (None, page)]
    if any(op.transposed and op.magnitude is not None for op in ops):
        yield 0, rows  # an output's norm runs over all stored rows
        return
    ranges = [op.rows for op in ops if op.rows is not None and not op.transposed]
    edges = sorted({0, rows, *(edge for cut in ranges for edge in cut)})
    for first, last in pairwise(edges):
        yield from row_blocks(first, last, columns)
