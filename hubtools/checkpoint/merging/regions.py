"""What a low-rank pair changes of a parameter in memory, and which of it a stored tensor holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from hubtools.checkpoint.merging.recipe import Factor, LowRank
from hubtools.checkpoint.naming.names import Part


@dataclass(frozen=True, slots=True)
class Region:
    """What a pair changes: some outputs of one page of an in-memory parameter.

    Args:
        outputs: half open.
        in_out: the outputs run along the columns there.
        rounding: as in `LowRank`.
    """

    parameter: str
    page: int | None
    outputs: tuple[int, int]
    in_out: bool
    rounding: Literal["once", "twice"]


def cut(
    part: Part, region: Region, a: Factor, b: Factor
) -> tuple[Factor, Factor, tuple[int, int]] | None:
    """The factors for what a stored tensor holds of the region, and which of its outputs."""
    if region.in_out:
        return a, b, region.outputs
    first, last = max(part.rows[0], region.outputs[0]), min(part.rows[1], region.outputs[1])
    if first >= last:
        return None
    start = region.outputs[0]
    b = replace(b, rows=slice(first - start, last - start))
    shift = (part.disk_rows[0] if part.disk_rows else 0) - part.rows[0]
    return a, b, (first + shift, last + shift)


def overlap(one: LowRank, other: LowRank) -> bool:
    """Whether two operations on one stored tensor change the same rows of it."""
    if one.page != other.page:
        return False
    if one.rows is None or other.rows is None:
        return True
    return one.rows[0] < other.rows[1] and other.rows[0] < one.rows[1]
