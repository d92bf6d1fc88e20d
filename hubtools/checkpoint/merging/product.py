"""Who multiplies B·A: numpy where it rounds as PEFT's torch does, torch elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from hubtools.checkpoint.merging.pieces import FEW_ROWS
from hubtools.checkpoint.merging.recipe import Layout, LowRank
from hubtools.errors import EnvironmentFailure

if TYPE_CHECKING:
    from hubtools.checkpoint.merging.arithmetic import Floats

Gemm = Callable[[Any, Any, Any], None]  # three float32 matrices


def engine_of(layout: Layout) -> Literal["numpy", "torch"]:
    """The library whose results are PEFT's bits, without torch when it is not needed."""
    products = [op for output in layout.outputs() for op in output.ops if isinstance(op, LowRank)]
    return "numpy" if all(map(_numpy_agrees, products)) else "torch"


def _numpy_agrees(op: LowRank) -> bool:
    # OpenBLAS and MKL add up B·A in the same order, hence round alike, only here (measured:
    # elsewhere the inner loop is split, or slivers and last columns take another kernel).
    # DoRA's norm is a sum of squares, whose order numpy does not share with torch at all.
    rows, columns = op.b.shape[0], op.a.shape[1]
    narrow = op.rank < 32 or (op.rank <= 128 and columns % 64 == 0)
    return op.magnitude is None and min(rows, columns) >= FEW_ROWS and narrow


def gemm_of(engine: str) -> Gemm:
    """The matrix product of `numpy` or `torch`: writes the first argument times the second into
    the third, in float32, on one thread.

    Raises:
        EnvironmentFailure: HT123 when torch is needed and not installed.
    """
    if engine == "numpy":
        return _numpy_product()
    try:
        import torch
    except ImportError as error:
        raise EnvironmentFailure(
            "HT123",
            "torch is needed to merge this adapter exactly as PEFT does",
            detail=("Nothing was written.",),
            next="pip install 'hf-hubtools[merge]'",
        ) from error
    torch.set_num_threads(1)

    def product(b: Floats, a: Floats, out: Floats) -> None:
        torch.mm(torch.from_numpy(b), torch.from_numpy(a), out=torch.from_numpy(out))

    return product


def _numpy_product() -> Gemm:
    import numpy as np

    def product(b: Floats, a: Floats, out: Floats) -> None:
        np.matmul(b, a, out=out)

    return product
