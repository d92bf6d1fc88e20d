"""How runs look in a terminal, and where they are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubtools.cli.output import Output
from hubtools.errors import CheckError, UsageError

if TYPE_CHECKING:
    from hubtools.evaluation.records import Run

_COLUMNS = 16


def runs_at(paths: Sequence[Path], note: Callable[[str], object] = str) -> list[Run]:
    """Every run at these places: a record, a run's folder, or any folder above some.

    Args:
        paths: of them.
        note: told of the runs below a folder that are left out: damaged or unfinished ones.

    Raises:
        UsageError: HT481 there is no finished run.
        CheckError: HT410 no run there holds what it says, or the one that was named does not.
    """
    from hubtools.evaluation.records import RUN, read_run
    from hubtools.evaluation.unfinished import unfinished_at

    found: dict[Path, Run] = {}
    for path in paths:
        files = [path] if path.is_file() else sorted(path.rglob(RUN), key=_by_number)
        begun = [str(run) for run in unfinished_at(path)] if path.is_dir() else []
        if not files:
            raise UsageError(
                "HT481",
                "no finished run there",
                where=str(path),
                detail=(
                    *begun[:5],
                    *(["The same evaluate command goes on with it."] * bool(begun)),
                ),
                next="evaluate first: hubtools evaluate MODEL",
            )
        for line in begun:
            note(f"! {line}; the same evaluate command goes on with it")
        damaged: list[CheckError] = []
        for file in files:
            try:
                found[file] = found.get(file) or read_run(file)
            except CheckError as error:
                if file in (path, path / RUN):
                    raise
                damaged.append(error)
        if len(damaged) == len(files):
            raise damaged[0]
        for left in damaged:
            note(f"! left out: {left.where}: {left.message}")
    return list(found.values())


def _by_number(file: Path) -> tuple[str, int]:
    number = file.parent.name
    return str(file.parent.parent), int(number) if number.isdecimal() else 0


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
