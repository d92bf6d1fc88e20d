"""What the user decides about a merge; recorded in the plan and in the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hubtools.errors import UsageError

STORED_DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """Choices that change the result.

    Args:
        keep_tied: leave input and output embedding one tensor, as PEFT does, even where the
            adapter makes them two.
        dtype: of every floating-point tensor of the result, in torch's words; None: as stored.
        base_is_residual: the base is the residual that a PiSSA-like adapter was trained on.

    Raises:
        UsageError: HT144 another dtype.
    """

    keep_tied: bool = False
    dtype: str | None = None
    base_is_residual: bool = False

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in STORED_DTYPES:
            raise UsageError(
                "HT144",
                f"cannot write a merged model as {self.dtype}",
                detail=("Nothing was written.",),
                next=f"choose one of {', '.join(STORED_DTYPES)}",
            )

    @property
    def stored_dtype(self) -> str | None:
        """`dtype` in the words of safetensors."""
        return STORED_DTYPES[self.dtype] if self.dtype is not None else None

    def to_json(self) -> dict[str, Any]:
        """All choices."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MergeOptions:
        """What `to_json` wrote."""
        return cls(**data)
