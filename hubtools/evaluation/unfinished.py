"""Runs that were begun and not finished, and how far they got."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eval_harness.journal import NAME as RESPONSES
from eval_harness.journal import whole_entries
from eval_harness.record import RUN
from eval_harness.runner import ABOUT


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A folder with a claim and without a record.

    Args:
        folder: of the run.
        answered: samples whose answers are kept.
        samples: all that were to be asked; 0 where the claim does not say.
    """

    folder: Path
    answered: int
    samples: int

    def __str__(self) -> str:
        of = f" of {self.samples}" if self.samples else ""
        return f"{self.folder}: unfinished, {self.answered}{of} answers kept"


def unfinished_at(path: Path) -> Iterator[Unfinished]:
    """The unfinished runs at or below a folder, by name; nothing is changed."""
    for about in sorted(path.rglob(ABOUT)):
        if not about.with_name(RUN).exists():
            yield Unfinished(about.parent, _answered(about.parent), _samples(about))


def _answered(folder: Path) -> int:
    try:
        data = (folder / RESPONSES).read_bytes()
    except OSError:  # no answer yet, or another harness's files
        return 0
    return len({(str(e.get("item")), str(e.get("trial"))) for _, _, e in whole_entries(data)})


def _samples(about: Path) -> int:
    try:
        suite = json.loads(about.read_bytes())["suite"]
        return int(suite["n"]) * int(suite["trials"])
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        return 0  # the claim of another harness, or a damaged one
