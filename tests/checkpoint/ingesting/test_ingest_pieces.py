"""Tensors in pieces: any cut, any strides, any dtype gives back the same bytes."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hubtools.checkpoint.aligned import aligned_buffer
from hubtools.checkpoint.ingesting.pieces import Piece, Reader, SourceTensor, covered, row_major

WIDTHS = {"BF16": np.uint16, "F32": np.uint32, "U8": np.uint8, "F64": np.uint64}
SHAPES = st.lists(st.integers(0, 7), max_size=3).map(tuple)


@st.composite
def cut(draw: Any) -> tuple[str, tuple[int, ...], int, list[int], bool]:
    """dtype, shape, dimension that is cut, sizes along it, and whether pieces are transposed."""
    shape = draw(SHAPES)
    dimension = draw(st.integers(0, max(0, len(shape) - 1)))
    whole = shape[dimension] if shape else 1
    points = sorted(draw(st.lists(st.integers(0, whole), max_size=4)))
    edges = [0, *points, whole]
    sizes = [high - low for low, high in pairwise(edges)]
    return draw(st.sampled_from(sorted(WIDTHS))), shape, dimension, sizes, draw(st.booleans())


def stored(path: Path, values: Any, case: Any) -> SourceTensor:
    """The tensor, its pieces in one file each with something before and behind."""
    dtype, shape, dimension, sizes, transposed = case
    pieces, begin = [], 0
    for number, size in enumerate(sizes if shape else [1]):
        index = [slice(None)] * len(shape)
        origin = [0] * len(shape)
        if shape:
            index[dimension] = slice(begin, begin + size)
            origin[dimension] = begin
        box = values[tuple(index)]
        laid = np.array(box.T if transposed else box, order="C")
        strides = row_major(laid.shape)[::-1] if transposed else row_major(box.shape)
        file = path / f"{number}"
        file.write_bytes(b"head!" * number + laid.tobytes() + b"tail")
        pieces.append(Piece(file, 5 * number, box.shape, tuple(origin), strides))
        begin += size
    return covered("t", dtype, shape, pieces)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(case=cut(), seed=st.integers(0, 99), block=st.sampled_from([8, 24, 4096]), data=st.data())
def test_any_cut_gives_back_the_bytes(
    tmp_path: Path, case: Any, seed: int, block: int, data: st.DataObject
) -> None:
    dtype, shape = case[:2]
    high = np.iinfo(WIDTHS[dtype]).max
    values = np.random.default_rng(seed).integers(0, high, shape, WIDTHS[dtype])
    values = np.asarray(values, WIDTHS[dtype])
    tensor = stored(tmp_path, values, case)
    start = data.draw(st.integers(0, tensor.elements))
    stop = data.draw(st.integers(start, tensor.elements))
    buffer, found = aligned_buffer(block), b""
    with Reader() as reader:
        for run in reader.runs(tensor, start, stop, block):
            assert run.size <= block
            found += run.read(buffer).tobytes()
    assert found == values.reshape(-1)[start:stop].tobytes()


@pytest.mark.parametrize(
    ("shape", "boxes"),
    [
        ((4, 3), [((0, 0), (2, 3)), ((1, 0), (2, 3))]),  # rows 1 twice, row 3 never
        ((4, 3), [((0, 0), (2, 3))]),
        ((4, 3), [((0, 0), (2, 3)), ((2, 0), (3, 3))]),
        ((4, 4), [((0, 0), (4, 2)), ((0, 1), (4, 2))]),
        ((4, 4), [((0, 0), (2, 2)), ((0, 2), (2, 2)), ((2, 0), (2, 2)), ((1, 2), (2, 2))]),
        ((4,), [((0, 0), (4, 1))]),
    ],
)
def test_gaps_and_overlaps_are_refused(shape: Any, boxes: Any) -> None:
    pieces = [Piece(Path("f"), 0, size, origin, row_major(size)) for origin, size in boxes]
    with pytest.raises(ValueError, match="t"):
        covered("t", "F32", shape, pieces)


def test_a_grid_of_boxes_covers(tmp_path: Path) -> None:
    values = np.arange(35, dtype=np.uint32).reshape(5, 7)
    pieces = []
    for number, (rows, columns) in enumerate(
        (r, c) for r in (slice(0, 2), slice(2, 5)) for c in (slice(0, 4), slice(4, 7))
    ):
        box = np.ascontiguousarray(values[rows, columns])
        (tmp_path / str(number)).write_bytes(box.tobytes())
        origin = (rows.start, columns.start)
        pieces.append(Piece(tmp_path / str(number), 0, box.shape, origin, row_major(box.shape)))
    tensor = covered("t", "F32", (5, 7), pieces[::-1])
    with Reader() as reader:
        runs = reader.runs(tensor, 0, math.prod(values.shape), 4096)
        found = b"".join(run.read(aligned_buffer(4096)).tobytes() for run in runs)
    assert found == values.tobytes()
