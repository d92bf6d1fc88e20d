"""How runs look in a terminal, and where they are found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubtools.cli.output import Output
from hubtools.errors import UsageError

if TYPE_CHECKING:
    from hubtools.evaluation.records import Run

_COLUMNS = 16


def runs_at(paths: Sequence[Path]) -> list[Run]:
    """Every run at these places: a record, a run's folder, or any folder above some.

    Raises:
        UsageError: HT481 there is no run.
        CheckError: HT410 a run does not hold what it says.
    """
    from hubtools.evaluation.records import RUN, read_run

    found: list[Path] = []
    for path in paths:
        files = [path] if path.is_file() else sorted(path.rglob(RUN), key=_by_number)
        if not files:
            raise UsageError(
                "HT481",
                "no finished run there",
                where=str(path),
                next="evaluate first: hubtools evaluate MODEL",
            )
        found += files
    return [read_run(file) for file in dict.fromkeys(found)]


def _by_number(file: Path) -> tuple[str, int]:
    number = file.parent.name
    return str(file.parent.parent), int(number) if number.isdigit() else 0


def runs_json(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """What `--json` says of each run: its record, with intervals, and the file that holds it."""
    import json

    from hubtools.evaluation.tables import metric_json

    return [
        {**json.loads(run.path.read_bytes()), "metrics": metric_json(run), "path": str(run.path)}
        for run in runs
    ]


def print_tables(
    output: Output, runs: Sequence[Run], *, baseline: str = "", best: bool = False
) -> None:
    """Tables of runs, each with what has to be said about it."""
    from hubtools.evaluation.tables import metric_tables

    for table in metric_tables(runs, baseline=baseline, best=best):
        if wide := len(table.columns) > _COLUMNS:
            table = replace(table, brief=True)
        output.table(table.columns, table.rows)
        output.note(table.caption)
        if wide:
            output.note("  categories and all intervals: hubtools evaluate table --markdown")
        for note in table.notes:
            output.note(f"  {note}")
