"""What a merged checkpoint is made of: for every output tensor its source and what is done to it.

The planner writes recipes from headers alone; the engine follows them block by block. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hubtools.checkpoint.headers import BITS, Header, TensorEntry


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor in one safetensors file."""

    path: Path
    entry: TensorEntry


@dataclass(frozen=True, slots=True)
class Factor:
    """A matrix cut from a stored adapter tensor: `stored[rows, columns]`, computed in float32.

    A tensor of more than two dimensions is seen as (first dimension, all others).
    """

    stored: Stored
    rows: slice = field(default_factory=lambda: slice(None))
    columns: slice = field(default_factory=lambda: slice(None))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of what is cut out."""
        first, *others = self.stored.entry.shape
        width = math.prod(others)
        return len(range(*self.rows.indices(first))), len(range(*self.columns.indices(width)))


@dataclass(frozen=True, slots=True)
class LowRank:
    """W ← W + scaling·(B·A); with a magnitude m, W ← (m / ‖V‖ per output row)·V, V being that sum.

    Args:
        a: A [rank, in].
        b: B [out, rank].
        rounding: `once`: the sum is taken in float32 and rounded to W's dtype. `twice`: scaling·B·A
            is rounded to W's dtype first, then added in that dtype (what PEFT does for embeddings
            and for parameters that are not modules).
        transposed: W is stored as [in, out].
        page: which matrix of a stacked W [pages, ., .]; None for a plain matrix.
        rows: which outputs of W change, half open, when B has only these; None: all.
        magnitude: DoRA's m, one number per output.
    """

    a: Factor
    b: Factor
    scaling: float
    rounding: Literal["once", "twice"] = "once"
    transposed: bool = False
    page: int | None = None
    magnitude: Stored | None = None
    rows: tuple[int, int] | None = None

    @property
    def rank(self) -> int:
        """Inner dimension of B·A."""
        return self.a.shape[0]


@dataclass(frozen=True, slots=True)
class AddVector:
    """v ← v + scaling·bias, in float32, rounded once: a LoRA with a bias of its own."""

    bias: Stored
    scaling: float


@dataclass(frozen=True, slots=True)
class SetRows:
    """W[rows[i]] ← values[i], cast to W's dtype: token rows that were trained as values."""

    rows: tuple[int, ...]
    values: Stored


Op = LowRank | AddVector | SetRows


@dataclass(frozen=True, slots=True)
class Output:
    """One tensor of the result.

    Args:
        source: whose values it starts from: the base's, or the adapter's for a tensor that was
            trained whole. Another dtype is cast (one rounding), another shape is a mistake.
        ops: in order; each rounds on its own. Empty: the source as it is.
        kind: what the report sums it up under (`q_proj`, `experts.gate_up_proj`, `embed_tokens`);
            empty when nothing was trained here.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    source: Stored
    ops: tuple[Op, ...] = ()
    kind: str = ""

    @property
    def bytes(self) -> int:
        """Size of its data in the file."""
        return math.prod(self.shape) * BITS[self.dtype] // 8

    @property
    def untouched(self) -> bool:
        """Whether it is a byte-for-byte copy of its source."""
        return not self.ops and self.source.entry.dtype == self.dtype


@dataclass(frozen=True, slots=True)
class OutputFile:
    """One weight file of the result.

    Args:
        name: file name in the output directory.
        outputs: in file order.
        like: the base file whose header bytes hold for this one too: same tensors, dtypes, shapes
            and offsets. None: a header has to be written.
    """

    name: str
    outputs: tuple[Output, ...]
    like: Header | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """All weight files of the result.

    Args:
        files: in name order.
        index: content of model.safetensors.index.json; None for a single file.
        index_bytes: the base's own index file when it stays true byte for byte.
    """

    files: tuple[OutputFile, ...]
    index: Mapping[str, Any] | None = None
    index_bytes: bytes | None = None

    def outputs(self) -> list[Output]:
        """Every tensor of the result."""
        return [output for file in self.files for output in file.outputs]

    @property
    def bytes(self) -> int:
        """Bytes of tensor data in all files."""
        return sum(output.bytes for output in self.outputs())
