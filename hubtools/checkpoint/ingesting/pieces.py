"""A tensor that lies in pieces in several files, read as if it lay in one. No torch here."""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hubtools.checkpoint.aligned import AlignedFile, Buffer, aligned_buffer
from hubtools.checkpoint.headers import BITS
from hubtools.errors import CheckError

FLOATS = frozenset({"F64", "F32", "F16", "BF16"})


class Checked(NamedTuple):
    """Bytes of a file that have a checksum.

    Args:
        path: the file.
        begin, size: where they lie, in bytes.
        crc: their CRC-32.
    """

    path: Path
    begin: int
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of a tensor, stored in one file.

    Args:
        path: the file.
        offset: byte at which the first element lies.
        shape: of the box; empty boxes have a zero in it.
        origin: index of its first element in the whole tensor.
        strides: elements between neighbours along each dimension, as stored.
        record: the bytes with a checksum that it lies in; None when there is none.
    """

    path: Path
    offset: int
    shape: tuple[int, ...]
    origin: tuple[int, ...]
    strides: tuple[int, ...]
    record: Checked | None = None

    @property
    def elements(self) -> int:
        """Number of elements in the box."""
        return math.prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether its elements follow each other in row-major order."""
        return all(
            stride == wanted
            for size, stride, wanted in zip(
                self.shape, self.strides, row_major(self.shape), strict=True
            )
            if size > 1
        )

    @property
    def span(self) -> int:
        """Elements from the first to the last one, both counted."""
        if not self.elements:
            return 0
        return 1 + sum(
            (size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)
        )


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """One tensor of a checkpoint.

    Args:
        dtype: in safetensors' words, for example `F32`.
        pieces: together they cover `shape` exactly, see `covered`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def width(self) -> int:
        """Bytes of one element."""
        return BITS[self.dtype] // 8

    @property
    def rowwise(self) -> bool:
        """Whether the pieces, one after the other, are the tensor in row-major order."""
        return all(piece.contiguous and piece.shape[1:] == self.shape[1:] for piece in self.pieces)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a tensor without gaps."""
    strides = [1] * len(shape)
    for index in range(len(shape) - 2, -1, -1):
        strides[index] = strides[index + 1] * shape[index + 1]
    return tuple(strides)


def covered(name: str, dtype: str, shape: tuple[int, ...], pieces: Sequence[Piece]) -> SourceTensor:
    """A tensor from its pieces, in order of place; empty ones are dropped.

    Raises:
        ValueError: when they leave a gap, overlap or reach out of `shape`.
    """
    kept = sorted((piece for piece in pieces if piece.elements), key=lambda piece: piece.origin)
    for piece in kept:
        if len(piece.shape) != len(shape) or any(
            begin < 0 or begin + size > whole
            for begin, size, whole in zip(piece.origin, piece.shape, shape, strict=True)
        ):
            raise ValueError(f"a piece of {name} reaches out of {list(shape)}")
    if sum(piece.elements for piece in kept) != math.prod(shape) or _overlap(kept):
        raise ValueError(f"the pieces of {name} do not cover {list(shape)} exactly")
    return SourceTensor(name, dtype, shape, tuple(kept))


def _overlap(pieces: Sequence[Piece]) -> bool:
    """Whether two boxes share an element; they are sorted by origin."""
    for index, one in enumerate(pieces):
        for other in pieces[index + 1 :]:
            if one.shape and other.origin[0] >= one.origin[0] + one.shape[0]:
                break  # nor does any later one begin before this one's last row
            if all(
                a < b + size_b and b < a + size_a
                for a, size_a, b, size_b in zip(
                    one.origin, one.shape, other.origin, other.shape, strict=True
                )
            ):
                return True
    return False


class Reader:
    """Reads tensors in row-major order; of one not split by rows it holds a whole copy.

    What is read in order, from begin to end, is checked against its checksum on the way.
    """

    def __init__(self) -> None:
        self._sums: dict[Checked, tuple[int, int]] = {}  # → (bytes so far, their CRC-32)
        self._files: dict[Path, AlignedFile] = {}
        self._stack = ExitStack()
        self._whole: tuple[SourceTensor, Buffer] | None = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def runs(self, tensor: SourceTensor, start: int, stop: int, block: int) -> Iterator[Run]:
        """Elements `start` to `stop` as runs of at most `block` bytes, in order.

        Raises (from reading a run):
            EnvironmentFailure: HT118 when a file became shorter.
        """
        width, most = tensor.width, block // tensor.width
        if not tensor.rowwise:
            for low in range(start, stop, most):
                high = min(stop, low + most)
                yield Run(partial(self._part, tensor, low * width), (high - low) * width)
            return
        begin = 0
        for piece in tensor.pieces:
            end = begin + piece.elements
            for low in range(max(begin, start), min(end, stop), most):
                size = (min(end, stop, low + most) - low) * width
                offset = piece.offset + (low - begin) * width
                yield Run(partial(self._stored, piece, offset), size)
            begin = end

    def verify(self) -> None:
        """Check every record that was read from; what was not read in order is read again.

        Raises:
            CheckError: HT168 the bytes of one are not those that were saved.
            EnvironmentFailure: HT118 when a file became shorter.
        """
        block = 4 << 20
        buffer = aligned_buffer(block)
        for record, (done, crc) in self._sums.items():
            for low in range(done, record.size, block):
                part = self._read(
                    record.path, buffer, record.begin + low, min(block, record.size - low)
                )
                crc = zlib.crc32(part.data, crc)
            if crc != record.crc:
                raise damaged(
                    record.path,
                    f"the {record.size} bytes at {record.begin} are not those that were saved"
                    f" (CRC-32 {crc:08x}, not {record.crc:08x})",
                )
        self._sums.clear()

    def _stored(self, piece: Piece, offset: int, buffer: Buffer, size: int) -> Buffer:
        part = self._read(piece.path, buffer, offset, size)
        if piece.record is not None:
            done, crc = self._sums.get(piece.record, (0, 0))
            if piece.record.begin + done == offset:
                done, crc = done + size, zlib.crc32(part.data, crc)
            self._sums[piece.record] = done, crc
        return part

    def _read(self, path: Path, buffer: Buffer, offset: int, size: int) -> Buffer:
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = self._stack.enter_context(AlignedFile(path))
        return file.read(buffer, offset, size)

    def _part(self, tensor: SourceTensor, offset: int, buffer: Buffer, size: int) -> Buffer:
        if self._whole is None or self._whole[0] is not tensor:
            self._whole = None  # before the next one is made: one at a time
            self._whole = tensor, self._gathered(tensor)
        buffer[:size] = self._whole[1][offset : offset + size]
        return buffer[:size]

    def _gathered(self, tensor: SourceTensor) -> Buffer:
        unit = np.dtype(f"V{tensor.width}")
        whole = np.empty(tensor.shape, unit)
        for piece in tensor.pieces:
            size = piece.span * tensor.width
            stored = self._stored(piece, piece.offset, aligned_buffer(size), size)
            steps = tuple(stride * tensor.width for stride in piece.strides)
            box = np.lib.stride_tricks.as_strided(stored.view(unit), piece.shape, steps)
            place = tuple(
                slice(begin, begin + size)
                for begin, size in zip(piece.origin, piece.shape, strict=True)
            )
            whole[place] = box
        return whole.reshape(-1).view(np.uint8)


class Run(NamedTuple):
    """Bytes that can be read at once: `fetch(buffer, size)` gives the part that holds them."""

    fetch: Callable[[Buffer, int], Buffer]
    size: int

    def read(self, buffer: Buffer) -> Buffer:
        """Read into a buffer of `aligned_buffer(size)`; the part of it that holds the bytes."""
        return self.fetch(buffer, self.size)


def equal(one: SourceTensor, other: SourceTensor, reader: Reader) -> bool:
    """Whether two tensors have the same dtype, shape and bytes."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if [(p.path, p.offset) for p in one.pieces] == [(p.path, p.offset) for p in other.pieces]:
        return True
    sides = [Reader(), reader]
    block = 4 << 20
    buffers = [aligned_buffer(block), aligned_buffer(block)]
    with sides[0]:
        for low in range(0, one.elements, block // one.width):
            high = min(one.elements, low + block // one.width)
            digests = []
            for side, tensor, buffer in zip(sides, (one, other), buffers, strict=True):
                digest = hashlib.sha256()
                for run in side.runs(tensor, low, high, block):
                    digest.update(run.read(buffer).data)
                digests.append(digest.digest())
            if digests[0] != digests[1]:
                return False
    return True


def damaged(path: Path, what: str, *detail: str) -> CheckError:
    """A file of the checkpoint cannot be believed."""
    return CheckError(
        "HT168",
        f"{path.name} cannot be used: {what}",
        where=str(path),
        detail=(*detail, "Nothing in it was run; nothing was written."),
        next="copy the step directory again from where it was trained, then run the same command",
    )
