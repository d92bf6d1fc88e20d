"""`hubtools family`: where every checkpoint of a family stands."""

from __future__ import annotations

from pathlib import Path

import click

from hubtools.cli import complete
from hubtools.cli.hubs import opened
from hubtools.cli.options import hub_option, with_output
from hubtools.cli.output import Output


@click.group("family", short_help="See where every checkpoint of a family stands.")
def command() -> None:
    """See where every checkpoint of a family stands."""


@command.command("status")
@click.argument("targets", nargs=-1, shell_complete=complete.targets)
@click.option("--family", type=click.Path(path_type=Path), help="Folder that holds family.toml.")
@click.option("--offline", is_flag=True, help="Do not ask the Hub.")
@hub_option
@with_output
def status(
    output: Output, targets: tuple[str, ...], family: Path | None, offline: bool, hub: str | None
) -> None:
    """One row per checkpoint: weights, card, evaluation, provenance, remote.

    TARGETS are a family folder, member ids (r2e/s50) or repo ids; none means every member.
    """
    from hubtools.cli.planview import print_finding
    from hubtools.release.locate import locate
    from hubtools.release.run import make_plan

    found, members = locate(targets, family, Path.cwd())
    with opened(output, found, members, hub, offline=offline) as release:
        plan = make_plan(release)
    columns = {"weights": "merge", "evaluation": "evaluate", "provenance": "verify"}
    columns |= {"card": "render", "sealed": "seal"}
    rows = []
    for change in plan.repos:
        cells = {name: plan.cell(stage, change.target) for name, stage in columns.items()}
        words = {name: _word(cell.action if cell else "") for name, cell in cells.items()}
        rows.append({"checkpoint": change.target, **words, "remote": change.words()})
    output.table(["checkpoint", *columns, "remote"], [list(row.values()) for row in rows])
    output.result(
        "hubtools.family-status/1",
        {
            "family": plan.family,
            "members": rows,
            "findings": [finding.to_json() for finding in plan.findings],
        },
    )
    for finding in plan.findings:
        print_finding(output, finding)


def _word(action: str) -> str:
    return {"cached": "ok", "run": "to do", "skip": "none", "waits": "waits"}.get(action, "unknown")
