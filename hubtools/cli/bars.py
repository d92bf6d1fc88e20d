"""Progress on a terminal: one bar a label, on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from hubtools.cli.heartbeat import amount
from hubtools.cli.text import cell
from hubtools.progress import Progress

SHOWN = 8
"""Finished bars beyond this many make room."""


@contextmanager
def bars(*, no_color: bool) -> Iterator[tuple[RichProgress, Progress]]:
    """The live display, whose console takes other lines meanwhile, and the listener behind it."""
    shown = RichProgress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[amount]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, no_color=no_color, highlight=False),
        redirect_stdout=False,
        redirect_stderr=False,
    )
    tasks: dict[str, TaskID] = {}

    def listener(label: str, done: int, total: int | None, unit: str) -> None:
        if label not in tasks:
            tasks[label] = shown.add_task(cell(label), total=total, amount="")
            ended = [task.id for task in shown.tasks if task.finished and task.visible]
            for task_id in ended[: max(0, len(ended) - SHOWN)]:
                shown.update(task_id, visible=False)
        shown.update(tasks[label], completed=done, total=total, amount=amount(done, total, unit))

    with shown:
        yield shown, listener
