"""How a plan looks on a terminal: one row per checkpoint, one column per stage."""

from __future__ import annotations

from hubtools.cli.output import Output
from hubtools.errors import Finding
from hubtools.release.plan import Cell, Plan
from hubtools.release.refuse import grouped, told

COLUMNS = ("checkpoint", "verify", "merge", "evaluate", "render", "seal", "card", "remote")
_STAGES = COLUMNS[1:6]


def print_plan(output: Output, plan: Plan, *, story: bool) -> None:
    """The table, the findings and the sisters.

    Args:
        output: where to print.
        plan: what to show.
        story: as part of a command's story (stderr) rather than as its data (stdout).
    """
    count = len(plan.targets)
    output.note(f"Family {plan.family} · {count} checkpoint{'s' * (count != 1)} · plan {plan.id}")
    output.note(f"Hub {plan.hub}" if plan.hub else "no Hub: local stages only")
    narrow = story or output.on_terminal  # a program that reads the table gets whole cells
    rows = [_row(plan, target, narrow) for target in plan.targets]
    base = [_base_row(plan, narrow)] if plan.cell("evaluate", "base") else []
    if story:
        widths = [max(len(r[i]) for r in [COLUMNS, *base, *rows]) for i in range(len(COLUMNS))]
        for row in [COLUMNS, *base, *rows]:
            cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
            output.note(("  " + "  ".join(cells)).rstrip())
    else:
        output.table(COLUMNS, [*base, *rows])
    for finding in grouped(plan.findings):
        if not story or finding.level != "error":  # the error that follows tells them all
            print_finding(output, finding)
    if plan.sisters:
        names = ", ".join(plan.sisters)
        output.note(f"sisters whose published cards would change: {names} (--with-sisters)")


def print_finding(output: Output, finding: Finding) -> None:
    """A finding as one line, and its fix as another."""
    output.note(told(finding))
    if finding.next and finding.level != "info":
        output.note(f"  next: {finding.next}")


def _row(plan: Plan, target: str, narrow: bool) -> tuple[str, ...]:
    change = next(change for change in plan.repos if change.target == target)
    stages = (_words(plan.cell(stage, target), narrow) for stage in _STAGES)
    return (target, *stages, change.card or "-", change.words())


def _base_row(plan: Plan, narrow: bool) -> tuple[str, ...]:
    cells = (_words(plan.cell(stage, "base"), narrow) for stage in _STAGES)
    return ("base", *cells, "-", "-")


def _words(cell: Cell | None, narrow: bool) -> str:
    if cell is None:
        return "-"
    words = cell.words()
    return words if len(words) <= 26 or not narrow else words[:25] + "…"
