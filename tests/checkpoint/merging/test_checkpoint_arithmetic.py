"""One rounding, to nearest even, whatever the block; what does not stay finite is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubtools.checkpoint.merging.arithmetic import STORED, Kernel, to_float32
from hubtools.checkpoint.merging.pieces import row_blocks
from hubtools.checkpoint.merging.product import gemm_of
from hubtools.checkpoint.merging.written import Sums


@given(st.integers(0, 3000), st.integers(1, 2_000_000))
def test_blocks_cover_the_rows_and_none_is_a_sliver(rows: int, columns: int) -> None:
    blocks = list(row_blocks(0, rows, columns))
    assert [row for start, stop in blocks for row in range(start, stop)] == list(range(rows))
    assert all(stop - start >= min(16, rows) for start, stop in blocks)


finite = st.floats(
    width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**99), max_value=2.0**99
)
small = st.floats(width=32, allow_nan=False, min_value=-1000, max_value=1000)


def tensors(values: list[float], dtype: str) -> tuple[Any, Any]:
    """(torch tensor, its bits as an array) of values rounded to `dtype`."""
    import torch

    kind = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}[dtype]
    base = torch.tensor(values, dtype=torch.float32).to(kind)
    return base, stored(base)


def stored(tensor: Any) -> Any:
    """A copy of a tensor as the kernels see it."""
    import torch

    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy().copy()
    return tensor.numpy().copy()


@settings(deadline=None)  # torch is imported in the first example
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize(("dtype", "numbers"), [("BF16", finite), ("F32", finite), ("F16", small)])
@given(data=st.data())
def test_sums_are_rounded_as_torch_does(dtype: str, numbers: Any, twice: bool, data: Any) -> None:
    import torch

    values = data.draw(st.lists(numbers, min_size=1, max_size=8))
    drawn = data.draw(st.lists(numbers, min_size=len(values), max_size=len(values)))
    delta = torch.tensor(drawn, dtype=torch.float32)
    base, bits = tensors(values, dtype)
    expected = base + delta.to(base.dtype) if twice else (base.float() + delta).to(base.dtype)
    before = bits.copy()
    sums = Kernel(dtype).add(bits, delta.numpy().copy(), twice=twice)
    np.testing.assert_array_equal(bits.view(np.uint8), stored(expected).view(np.uint8))
    assert sums.moved == np.count_nonzero(_words(bits) != _words(before))
    assert sums.elements == len(values)
    np.testing.assert_allclose(
        [sums.delta, sums.weight],
        [float(delta.double().square().sum()), float(base.double().square().sum())],
        rtol=1e-5,
        atol=1e-30,
    )


def _words(array: Any) -> Any:
    return array.view({2: np.uint16, 4: np.uint32}[array.dtype.itemsize])


@settings(deadline=None)
@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@given(values=st.lists(small, min_size=1, max_size=8), data=st.data())
def test_values_are_put_as_torch_rounds_them(dtype: str, values: list[float], data: Any) -> None:
    import torch

    new = torch.tensor(
        data.draw(st.lists(small, min_size=len(values), max_size=len(values))), dtype=torch.float32
    )
    base, bits = tensors(values, dtype)
    asked = np.zeros(len(values), np.float32)
    sums = Kernel(dtype).put(bits, new.numpy().copy(), asked=asked)
    np.testing.assert_array_equal(bits, stored(new.to(base.dtype)))
    np.testing.assert_array_equal(asked, (new - base.float()).numpy())
    np.testing.assert_allclose(
        sums.delta, float((asked.astype(np.float64) ** 2).sum()), rtol=1e-5, atol=1e-30
    )


@pytest.mark.parametrize(
    ("bits", "delta", "expected"),
    [
        (0x3F80, 2.0**-9, 0x3F80),  # 1 + half a step: a tie, to even
        (0x3F81, 2.0**-8, 0x3F82),  # the next tie goes up
        (0x3F80, 2.0**-8 + 2.0**-20, 0x3F81),  # just above the tie
        (0x0000, 0.0, 0x0000),
    ],
)
def test_ties_of_bfloat16(bits: int, delta: float, expected: int) -> None:
    out = np.array([bits, bits], np.uint16)
    Kernel("BF16").add(out, np.full(2, delta, np.float32))
    assert list(out) == [expected, expected]


def test_pieces_of_a_large_block_are_like_one() -> None:
    random = np.random.default_rng(0)
    base = random.standard_normal(200_003, np.float32)
    delta = random.standard_normal(200_003, np.float32)
    out = base.copy()
    sums = Kernel("F32").add(out, delta.copy())
    np.testing.assert_array_equal(out, base + delta)
    assert sums.elements == 200_003
    np.testing.assert_allclose(
        sums.delta, np.square(delta, dtype=np.float64).sum(), rtol=1e-5, atol=1e-30
    )


@pytest.mark.parametrize("method", ["add", "put"])
@pytest.mark.parametrize(
    ("dtype", "array"),
    [
        ("F16", np.array([65504, 1], np.float16)),
        ("F32", np.array([3e38, 1], np.float32)),
        ("BF16", np.array([0x7F7F, 0x3F80], np.uint16)),
    ],
)
def test_what_does_not_stay_finite_is_told(dtype: str, array: Any, method: str) -> None:
    for value in (3.4028e38, np.inf, np.nan):
        values = np.array([0, value], np.float32)
        if method == "add" and dtype != "F16" and np.isfinite(value):
            values[0] = value  # the largest value and another one
        elif dtype == "F32" and np.isfinite(value):
            continue  # it fits
        with pytest.raises(FloatingPointError), np.errstate(all="ignore"):
            getattr(Kernel(dtype), method)(array.copy(), values)


def test_large_but_finite_values_pass() -> None:
    out = np.array([0x7F00, 0x3F80], np.uint16)  # 1.7e38, whose square is no float32
    assert Kernel("BF16").add(out, np.zeros(2, np.float32)).moved == 0
    halves = np.array([60000, 1], np.float16)
    Kernel("F16").add(halves, np.array([5000, 0], np.float32))
    assert float(halves[0]) == 65000 - 65000 % 32


@settings(deadline=None)
@given(st.binary(min_size=12, max_size=12))
def test_widening_is_exact(data: bytes) -> None:
    import torch

    for dtype, kind in (("BF16", torch.bfloat16), ("F16", torch.float16), ("F32", torch.float32)):
        expected = torch.frombuffer(bytearray(data), dtype=kind).float().numpy()
        np.testing.assert_array_equal(to_float32(data, dtype, (len(expected),)), expected)


@settings(deadline=None)
@given(st.lists(st.floats(width=32), min_size=1, max_size=6), st.sampled_from(["BF16", "F32"]))
def test_a_cast_keeps_what_was_infinite_or_no_number(values: list[float], dtype: str) -> None:
    import torch

    wide = torch.tensor(values, dtype=torch.float32)
    kind = {"BF16": torch.bfloat16, "F32": torch.float32}[dtype]
    expected = wide.to(kind)
    out = np.empty(len(values), STORED[dtype])
    if bool((torch.isfinite(wide) & ~torch.isfinite(expected)).any()):
        with pytest.raises(FloatingPointError):
            Kernel(dtype).cast(wide.numpy().copy(), out)
        return
    Kernel(dtype).cast(wide.numpy().copy(), out)
    found = torch.from_numpy(to_float32(out.tobytes(), dtype, (len(values),)))
    assert torch.equal(torch.isnan(found), torch.isnan(wide))
    assert torch.equal(torch.nan_to_num(found), torch.nan_to_num(expected.float()))


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


def test_sums_add_up() -> None:
    total = Sums(1, 1, 0.5, 2.0)
    total.add(Sums(2, 0, 0.25, 1.0))
    assert total == Sums(3, 1, 0.75, 3.0)
