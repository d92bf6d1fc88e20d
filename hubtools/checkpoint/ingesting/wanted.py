"""What a model's checkpoint must look like: names and shapes, in memory and on disk. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class View:
    """An on-disk tensor inside an in-memory one.

    Args:
        source: name in memory.
        start: its first element there, in row-major order.
        shape: its elements follow each other in this shape.
    """

    source: str
    start: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Expected:
    """A model's tensors.

    Args:
        memory: in-memory names, tied duplicates included.
        disk: on-disk names, without tied duplicates.
        tied: duplicate → the tensor it shares, in memory names.
        wide: on-disk names that stay float32 when the model is narrower.
        origin: who says so, for messages.
        dtypes: on-disk name → dtype that says what kind of number it is, in safetensors' words.
    """

    memory: Shapes
    disk: Mapping[str, View]
    tied: Mapping[str, str]
    wide: frozenset[str] = field(default=frozenset())
    origin: str = ""
    dtypes: Mapping[str, str] = field(default_factory=dict)


def number_kind(dtype: str) -> str:
    """What kind of number a dtype in safetensors' words holds; a cast never crosses kinds."""
    if dtype in ("F64", "F32", "F16", "BF16"):
        return "floats"
    if dtype == "BOOL":
        return "truth values"
    return "whole numbers" if dtype[:1] in "IU" else f"quantised {dtype}"
