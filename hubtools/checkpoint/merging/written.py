"""What became of tensors and files; free of numpy, for the parent of the process that merges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any


@dataclass(slots=True)
class Sums:
    """What happened to some elements.

    Args:
        elements: how many there are.
        moved: how many are stored as another value now.
        delta: ‖Δ‖², Δ the change before it was rounded.
        weight: ‖W‖², W the values before.
    """

    elements: int = 0
    moved: int = 0
    delta: float = 0.0
    weight: float = 0.0

    def add(self, other: Sums) -> None:
        """Count the elements of `other` too."""
        self.elements += other.elements
        self.moved += other.moved
        self.delta += other.delta
        self.weight += other.weight


@dataclass(frozen=True, slots=True)
class Written:
    """One weight file that is on the disk.

    Args:
        sums: output tensor name → what happened to it; only tensors that were not just copied.
    """

    sha256: str
    size: int
    sums: dict[str, Sums]

    def to_json(self) -> dict[str, Any]:
        """For the journal, and from process to process; exact."""
        sums = {tensor: list(astuple(sums)) for tensor, sums in self.sums.items()}
        return {"sha256": self.sha256, "size": self.size, "sums": sums}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Written:
        """What `to_json` wrote.

        Raises:
            LookupError, TypeError, ValueError: it is not that.
        """
        sums = {str(tensor): Sums(*fields) for tensor, fields in dict(data["sums"]).items()}
        return cls(str(data["sha256"]), int(data["size"]), sums)
