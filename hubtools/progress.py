"""How rooms tell how far they are, without knowing who listens."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called often; the listener throttles.

    Args:
        label: what is being done, for example `merge r2e/s50` or `upload model.safetensors`.
        done: units finished so far.
        total: units in all, or None when unknown.
        unit: `bytes`, `samples`, `files`, `steps`.
    """

    def __call__(self, label: str, done: int, total: int | None, unit: str) -> None:
        """Report that `done` of `total` units of `label` are finished."""


def labelled(progress: Progress, name: str) -> Progress:
    """A listener that tells `progress` under another name: one that says whose work it is."""

    def told(label: str, done: int, total: int | None, unit: str) -> None:
        progress(name, done, total, unit)

    return told


def silent(label: str, done: int, total: int | None, unit: str) -> None:
    """The listener that is not there."""
