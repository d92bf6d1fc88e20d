"""Progress on a terminal: one bar a label, on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from hubtools.cli.heartbeat import amount
from hubtools.cli.text import cell
from hubtools.progress import Progress


@contextmanager
def bars(*, no_color: bool) -> Iterator[tuple[Console, Progress]]:
    """Live bars; the console is where other lines go meanwhile."""
    console = Console(stderr=True, no_color=no_color, highlight=False)
    shown = RichProgress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[amount]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with shown:
        tasks = {}

        def listener(label: str, done: int, total: int | None, unit: str) -> None:
            if label not in tasks:
                tasks[label] = shown.add_task(cell(label), total=total, amount="")
            shown.update(
                tasks[label], completed=done, total=total, amount=amount(done, total, unit)
            )

        yield console, listener
