"""What became of tensors and files; free of numpy, for the parent of the process that merges."""

from __future__ import annotations

from dataclasses import dataclass


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
