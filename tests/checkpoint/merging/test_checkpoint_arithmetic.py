"""One rounding, to nearest even, whatever the block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubtools.checkpoint.merging.arithmetic import BlockMerger, gemm_of, row_blocks, to_float32


@given(st.integers(0, 3000), st.integers(1, 2_000_000))
def test_blocks_cover_the_rows_and_none_is_a_sliver(rows: int, columns: int) -> None:
    blocks = list(row_blocks(rows, columns))
    assert [row for start, stop in blocks for row in range(start, stop)] == list(range(rows))
    assert all(stop - start >= min(16, rows) for start, stop in blocks)


def merged(bits: Any, dtype: str, delta: Any) -> tuple[Any, int]:
    """Merge with A = 1 row of deltas and B = ones: the sum is W + delta exactly in float32."""
    block = np.array(bits).view(np.uint8)
    b = np.ones((2, 1), np.float32)
    a = np.array([delta], np.float32)
    moved = BlockMerger(dtype, gemm_of("numpy")).add(block, b, a, 1.0)
    return block.view(np.array(bits).dtype), moved


finite = st.floats(
    width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**99), max_value=2.0**99
)


@settings(deadline=None)  # torch is imported in the first example
@given(st.lists(finite, min_size=2, max_size=8), st.data())
def test_bfloat16_rounds_as_torch_does(values: list[float], data: Any) -> None:
    import torch

    columns = len(values)
    drawn = data.draw(st.lists(finite, min_size=columns, max_size=columns))
    delta = np.array(drawn, np.float32) + np.float32(0)  # a product in BLAS is never -0.0
    base = torch.tensor([values, values]).to(torch.bfloat16)
    bits = base.view(torch.uint16).numpy().copy()
    expected = (base.float() + torch.from_numpy(delta)).to(torch.bfloat16)
    out, moved = merged(bits.reshape(-1), "BF16", delta)
    np.testing.assert_array_equal(out, expected.view(torch.uint16).numpy().reshape(-1))
    assert moved == int((expected.view(torch.uint16) != base.view(torch.uint16)).sum())


@pytest.mark.parametrize(
    ("stored", "delta", "expected"),
    [
        (0x3F80, 2.0**-9, 0x3F80),  # 1 + half a step: a tie, to even
        (0x3F81, 2.0**-8, 0x3F82),  # the next tie goes up
        (0x3F80, 2.0**-8 + 2.0**-20, 0x3F81),  # just above the tie
        (0x0000, 0.0, 0x0000),
    ],
)
def test_ties_of_bfloat16(stored: int, delta: float, expected: int) -> None:
    out, _ = merged(np.array([stored, stored], np.uint16), "BF16", np.array([delta], np.float32))
    assert list(out) == [expected, expected]


@pytest.mark.parametrize(
    ("dtype", "array"),
    [
        ("F16", np.array([65504, 1], np.float16)),
        ("F32", np.array([3e38, 1], np.float32)),
        ("BF16", np.array([0x7F7F, 0x3F80], np.uint16)),
    ],
)
def test_what_does_not_stay_finite_is_told(dtype: str, array: Any) -> None:
    for delta in (3e38, np.inf, np.nan):
        with pytest.raises(FloatingPointError), np.errstate(over="ignore"):
            merged(array.copy(), dtype, np.array([delta], np.float32))


@settings(deadline=None)
@given(st.binary(min_size=12, max_size=12))
def test_widening_is_exact(data: bytes) -> None:
    import torch

    for dtype, kind in (("BF16", torch.bfloat16), ("F16", torch.float16), ("F32", torch.float32)):
        expected = torch.frombuffer(bytearray(data), dtype=kind).float().numpy()
        np.testing.assert_array_equal(to_float32(data, dtype, (len(expected),)), expected)


@pytest.mark.parametrize("rank", [1, 7, 16, 31, 64, 128])
def test_blocks_of_rows_multiply_as_torch_does_at_once(rank: int) -> None:
    import torch

    random = np.random.default_rng(rank)
    columns = 192 if rank >= 32 else 107
    b = random.standard_normal((335, rank), np.float32)
    a = random.standard_normal((rank, columns), np.float32)
    expected = (torch.from_numpy(b) @ torch.from_numpy(a)).numpy()
    for engine in ("numpy", "torch"):
        out = np.empty_like(expected)
        for start in range(0, 320, 16):
            stop = 335 if start == 304 else start + 16
            gemm_of(engine)(b[start:stop], a, out[start:stop])
        np.testing.assert_array_equal(out, expected)
