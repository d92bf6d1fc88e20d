"""What the scripted runs of this folder know, for fixtures and tests alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripted_server import Answer, says

from hubtools.evaluation.spec import Cell, Engine, SuiteOptions, Target


def cell(
    suite: Path | str,
    out: Path,
    *,
    model: Path | None = None,
    adapter: Path | None = None,
    url: str = "",
    member: str = "m",
    weights: str = "ab" * 32,
    seed: int = 0,
    options: SuiteOptions | None = None,
    **engine: Any,
) -> Cell:
    """A cell of a model in process, or of a scripted server."""
    if url:
        engine = {"kind": "endpoint", "served_name": "served-name", "url": url, **engine}
    target = Target(member, weights, model, adapter)
    return Cell(target, str(suite), Engine(**engine), seed, out, options or SuiteOptions())


WEIGHTS = {"base": "b0" * 32, "mi": "c1" * 32, "r2e": "d2" * 32}
RIGHT = {"base": 3, "mi": 5, "r2e": 23}  # of the 24 questions of the suite, these many


def first_right(count: int) -> Callable[..., Answer]:
    """A server that knows the first `count` words and calls all others "w none"."""

    def script(question: str, *_: object) -> Answer:
        number = question.rpartition("word ")[2].rstrip("?")
        return says(f"w{number}" if int(number) < count else "nothing")

    return script
