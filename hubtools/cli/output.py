"""The one sink: data on stdout, the story on stderr, `--json` one object, tokens nowhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TextIO

import click

from hubtools.cli.text import cell, clean, one_line, redact
from hubtools.errors import UsageError
from hubtools.progress import Progress, silent

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

Color = Literal["auto", "always", "never"]

ANSWERED = "hubtools.answered"
"""Key in a Click context's `meta`: the one JSON object of this run has been printed."""

_PAINT = {"✓": "green", "✗": "red", "!": "yellow", "warning": "yellow", "error": "red"}


def use_color(choice: Color, stream: TextIO) -> bool:
    """Whether to colour `stream`: flag, then NO_COLOR, then FORCE_COLOR, then a capable TTY."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(line: str, color: bool) -> str:
    """Colour the leading mark of a line; the mark and its words carry the meaning without it."""
    mark, space, rest = line.partition(" ")
    style = _PAINT.get(mark) or _PAINT.get(mark.partition("[")[0])
    return click.style(mark, fg=style, bold=True) + space + rest if color and style else line


class Output:
    """Where a command prints.

    Args:
        json: one JSON object on stdout and no other data there.
        quiet: only data lines on stdout; no story.
        color: `auto`, `always` or `never`.
    """

    def __init__(self, *, json: bool = False, quiet: bool = False, color: Color = "auto") -> None:
        self.json = json
        self.quiet = quiet
        self.color: Color = color
        self._live: RichProgress | None = None

    def result(self, schema: str, data: Mapping[str, Any]) -> None:
        """With `--json`: `{"schema": schema, **data}` on one line of stdout; else nothing.

        Args:
            schema: `hubtools.<name>/<version>`, described in `docs/schemas`.
            data: JSON values; NaN and infinities are refused (ValueError).
        """
        if not self.json:
            return
        import json

        self._data(json.dumps({"schema": schema, **data}, allow_nan=False))
        context = click.get_current_context(silent=True)
        if context is not None:
            context.meta[ANSWERED] = True

    @property
    def on_terminal(self) -> bool:
        """Whether a person reads the data as it comes."""
        return sys.stdout.isatty()

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Rows on stdout: aligned on a terminal, tab-separated with a header line elsewhere."""
        if self.json or self.quiet:
            return
        cells = [[cell(value) for value in row] for row in rows]
        if sys.stdout.isatty():
            self._rich_table(columns, cells)
            return
        for row in [list(columns), *cells]:
            self._data("\t".join(row))

    def line(self, text: str) -> None:
        """A line of data on stdout, also under `-q`; nothing with `--json`."""
        if not self.json:
            self._data(text)

    def note(self, text: str) -> None:
        """A line of the story on stderr; nothing under `-q`."""
        if self.quiet:
            return
        text = one_line(text)
        if self._live is not None:
            from rich.text import Text

            line = Text.from_ansi(paint(text, use_color(self.color, sys.stderr)))
            self._live.console.print(line, soft_wrap=True)
            return
        sys.stderr.write(paint(text, use_color(self.color, sys.stderr)) + "\n")
        sys.stderr.flush()

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """A listener for work under way: bars on a terminal, else a line now and then."""
        if self.quiet:
            yield silent
        elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            from hubtools.cli.bars import bars

            with bars(no_color=not use_color(self.color, sys.stderr)) as (live, listener):
                self._live = live
                try:
                    yield listener
                finally:
                    self._live = None
        else:
            from hubtools.cli.heartbeat import heartbeat

            with heartbeat(self.note) as listener:
                yield listener

    def confirm(self, question: str, yes: bool) -> None:
        """Ask on stderr; return on yes.

        Raises:
            UsageError: HT002 without a terminal and without `--yes`.
            click.Abort: the answer was no.
        """
        if yes:
            return
        if not sys.stdin.isatty():
            raise UsageError(
                "HT002",
                "this needs a yes, and there is no terminal to ask on",
                detail=(f"The question was: {question}", "Nothing was changed."),
                next="run the same command with --yes",
            )
        with self._paused():
            if not click.confirm(one_line(question), err=True):
                raise click.Abort

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """No bars while a person types."""
        if self._live is None:
            yield
            return
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()

    def _data(self, text: str) -> None:
        # Data keeps its bytes for scripts; on a terminal it is disarmed as well.
        on_terminal = sys.stdout.isatty()
        text = clean(text) if on_terminal else redact(text)
        if self._live is not None and on_terminal:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
            return
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def _rich_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        color = use_color(self.color, sys.stdout)
        style = "bold" if color else ""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=style)
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(Text.from_ansi(paint(value, color)) for value in row))
        Console(file=sys.stdout, no_color=not color, highlight=False).print(table)
