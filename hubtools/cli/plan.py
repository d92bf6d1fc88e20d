"""`hubtools plan`: what a release would do; nothing is changed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from hubtools.cli import complete
from hubtools.cli.hubs import opened
from hubtools.cli.options import hub_option, with_output
from hubtools.cli.output import Output
from hubtools.errors import ExitCode, UsageError


@click.command("plan", short_help="Show what a release would do; change nothing.")
@click.argument("targets", nargs=-1, shell_complete=complete.targets)
@click.option("--family", type=click.Path(path_type=Path), help="Folder that holds family.toml.")
@click.option("--plan-out", type=click.Path(path_type=Path), help="Save the plan for --apply.")
@click.option("--exit-code", is_flag=True, help="Exit 10 when there is something to do.")
@click.option("--offline", is_flag=True, help="Do not ask the Hub.")
@hub_option
@with_output
def command(
    output: Output,
    targets: tuple[str, ...],
    family: Path | None,
    plan_out: Path | None,
    exit_code: bool,
    offline: bool,
    hub: str | None,
) -> None:
    """Show what a release would do; change nothing.

    TARGETS are a family folder, member ids (r2e/s50) or repo ids; none means every member.
    """
    from hubtools.cli.planview import print_plan
    from hubtools.files import write_json
    from hubtools.release.locate import locate
    from hubtools.release.plan import SCHEMA
    from hubtools.release.run import make_plan

    if plan_out is not None:
        _spare(plan_out)
    found, members = locate(targets, family, Path.cwd())
    with opened(output, found, members, hub, offline=offline) as release:
        plan = make_plan(release)
    print_plan(output, plan, story=False)
    output.result(SCHEMA, plan.to_json())
    if output.quiet and not output.json:
        for change in plan.repos:
            if change.action != "in sync":
                output.line(change.repo)
    if plan_out is not None:
        write_json(plan_out, {"schema": SCHEMA, "root": str(found.root), **plan.to_json()})
        output.note(f"plan saved: hubtools release --apply {plan_out}")
    if not plan.pending and not plan.errors():
        output.note("✓ nothing left to do")
    if plan.errors():
        raise SystemExit(int(ExitCode.CHECK))
    if exit_code and plan.pending:
        raise SystemExit(int(ExitCode.CHANGES))


def _spare(plan_out: Path) -> None:
    """Nothing but an earlier plan is written over.

    Raises:
        UsageError: HT506.
    """
    from hubtools.release.plan import is_saved_plan

    if not os.path.lexists(plan_out):
        return
    try:
        if is_saved_plan(json.loads(plan_out.read_bytes())):
            return
    except (OSError, ValueError, RecursionError):
        pass
    raise UsageError(
        "HT506",
        "what is there is no saved plan, so it is not written over",
        where=str(plan_out),
        detail=("Nothing was changed.",),
        next="--plan-out with another name",
    )
