"""Options that every command shares, spelled once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import click

from hubtools.cli.output import Color, Output

Function = TypeVar("Function", bound=Callable[..., Any])


def output_options(function: Function) -> Function:
    """Add `--json`, `-q/--quiet` and `--color` as they are spelled everywhere."""
    for option in (
        click.option(
            "--color",
            type=click.Choice(["auto", "always", "never"]),
            default=None,
            help="Colour the output (NO_COLOR and FORCE_COLOR are honoured).",
        ),
        click.option("-q", "--quiet", is_flag=True, help="Print data only."),
        click.option("--json", is_flag=True, help="Print one JSON object."),
    ):
        function = option(function)
    return function


def with_output(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the output options and pass it `output`, an `Output`, by keyword.

    The same options before the command's name (`hubtools --json plan`) count too.
    """

    @wraps(function)
    def command(*args: Any, json: bool, quiet: bool, color: str | None, **kwargs: Any) -> Any:
        from hubtools.settings import resolve  # 6 ms that --help need not spend

        before = click.get_current_context().find_root().params
        output = Output(
            json=json or bool(before.get("json")),
            quiet=quiet or bool(before.get("quiet")),
            color=cast(Color, resolve({"color": color or before.get("color")}).color),
        )
        return function(*args, output=output, **kwargs)

    return output_options(command)


yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask; take yes for an answer.")
hub_option = click.option(
    "--hub", metavar="URL|local", default=None, help="Which Hub: a URL, or the embedded one."
)
