"""Entry point: a table of commands whose help and completion load nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from hubtools import __version__
from hubtools.cli.options import output_options

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Row(NamedTuple):
    """Where a command lives (it exports `command`) and its line in the help."""

    module: str
    help: str


COMMANDS = {
    "plan": Row("hubtools.cli.plan", "Show what a release would do; change nothing."),
    "release": Row("hubtools.cli.release", "Check, merge, evaluate, render and push a family."),
    "inspect": Row(
        "hubtools.cli.inspect", "Say what a directory or repo holds, and what it gives away."
    ),
    "merge": Row("hubtools.cli.merge", "Merge LoRA adapters into their base, bit for bit as PEFT."),
    "ingest": Row("hubtools.cli.ingest", "Turn a trainer's shards into an ordinary checkpoint."),
    "evaluate": Row("hubtools.cli.evaluate", "Run evaluation suites and keep every answer."),
    "retriever": Row("hubtools.cli.retriever", "Build and serve a corpus for agents that search."),
    "provenance": Row("hubtools.cli.provenance", "Verify from raw logs which teacher answered."),
    "card": Row("hubtools.cli.card", "Render, show and adopt model cards."),
    "push": Row("hubtools.cli.push", "Push sealed releases, each repo in one commit."),
    "family": Row("hubtools.cli.family", "See where every checkpoint of a family stands."),
    "store": Row("hubtools.cli.store", "Look after what releases leave on this machine."),
    "hub": Row("hubtools.cli.hub", "Run the embedded Hub for rehearsals, CI and demos."),
}


class LazyGroup(click.Group):
    """A group that imports a command when it runs, not when it is listed.

    Click's own help and completion ask every command for its short help, which would import them
    all; the table has it.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Command names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command; None for an unknown name."""
        row = COMMANDS.get(cmd_name)
        if row is None:
            return None
        command: click.Command = import_module(row.module).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As Click does, with the table's names as suggestions."""
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command list of `--help`, from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.help) for name, row in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names and help for TAB, from the table."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=row.help)
            for name, row in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@output_options
@click.version_option(__version__, prog_name="hubtools")
def cli(**_options: Any) -> None:
    """Publish checkpoints to the Hugging Face Hub with cards that can be trusted."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    from hubtools.cli.failure import run

    sys.exit(run(cli, list(sys.argv[1:] if argv is None else argv)))
