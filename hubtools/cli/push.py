"""`hubtools push`: publish what is sealed; no local stage is run."""

from __future__ import annotations

from pathlib import Path

import click

from hubtools.cli import complete
from hubtools.cli.hubs import opened
from hubtools.cli.options import hub_option, with_output, yes_option
from hubtools.cli.output import Output


@click.command("push", short_help="Push sealed releases, each repo in one commit.")
@click.argument("targets", nargs=-1, shell_complete=complete.targets)
@click.option("--family", type=click.Path(path_type=Path), help="Folder that holds family.toml.")
@yes_option
@hub_option
@with_output
def command(
    output: Output, targets: tuple[str, ...], family: Path | None, yes: bool, hub: str | None
) -> None:
    """Push sealed releases: blobs first, then each repo in one commit.

    TARGETS are a family folder, member ids or repo ids. What is not sealed (`hubtools release
    --dry-run` seals) is refused.
    """
    from hubtools.cli.planview import print_plan
    from hubtools.cli.release import report
    from hubtools.release.locate import locate
    from hubtools.release.run import run_release

    found, members = locate(targets, family, Path.cwd())
    with opened(output, found, members, hub) as release:
        result = run_release(
            release,
            show=lambda plan: print_plan(output, plan, story=True),
            confirm=lambda plan: output.confirm(f"Push to {plan.hub}?", yes),
            only_push=True,
        )
    report(output, result)
