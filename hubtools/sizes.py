"""Sizes in words, the same everywhere. Pure."""

from __future__ import annotations


def size_words(count: int) -> str:
    """A number of bytes in decimal units, as the Hub shows them: `8.1 GB`, `346.7 kB`, `12 B`."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
