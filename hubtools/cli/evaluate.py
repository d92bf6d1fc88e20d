"""`hubtools evaluate`: run suites on checkpoints, and read what the kept runs say."""

from __future__ import annotations

import click

from hubtools.cli import evaluate_keep, evaluate_read, evaluate_run


class DefaultGroup(click.Group):
    """A group whose `run` need not be named: `evaluate MODEL` is `evaluate run MODEL`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As Click does, with `run` before arguments that name no command."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(
    "evaluate",
    cls=DefaultGroup,
    short_help="Run evaluation suites and keep every answer.",
)
def command() -> None:
    """Run evaluation suites and keep every answer.

    `hubtools evaluate MODEL` is short for `hubtools evaluate run MODEL`.
    """


for _sub in (
    evaluate_run.run,
    evaluate_read.show,
    evaluate_read.samples,
    evaluate_read.table,
    evaluate_read.compare,
    evaluate_keep.rescore,
    evaluate_keep.import_,
    evaluate_keep.pin,
    evaluate_run.cell,
):
    command.add_command(_sub)
