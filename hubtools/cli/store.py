"""`hubtools store`: what releases leave on this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubtools.cli.hubs import opened
from hubtools.cli.options import with_output, yes_option
from hubtools.cli.output import Output

if TYPE_CHECKING:
    from hubtools.release.context import Release
    from hubtools.release.gc import Garbage

SCHEMA = "hubtools.store-gc/1"


@click.group("store", short_help="Look after what releases leave on this machine.")
def command() -> None:
    """Look after what releases leave on this machine."""


@command.command("gc")
@click.argument("folder", required=False, metavar="[FAMILY]", type=click.Path(path_type=Path))
@click.option("--family", type=click.Path(path_type=Path), help="Folder that holds family.toml.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; delete nothing.")
@yes_option
@with_output
def gc(output: Output, folder: Path | None, family: Path | None, dry_run: bool, yes: bool) -> None:
    """Delete what no current result of a family refers to.

    FAMILY is the folder that holds family.toml; without it the one found from here.

    That is: merged and ingested weights of inputs that have changed, work of engines that were
    killed, and old records, copies and logs. Checkpoints, the base, evaluation runs and receipts
    stay. What the next release would go on with stays too; weights that are deleted here are made
    again if their inputs come back.
    """
    from hubtools.files import locked
    from hubtools.release.gc import delete, find_garbage
    from hubtools.release.locate import locate
    from hubtools.sizes import size_words

    if not (yes or dry_run or sys.stdin.isatty()):
        output.confirm("Delete what is not needed?", yes=False)  # fails before anything is read
    found, _ = locate((), folder or family, Path.cwd())
    with opened(output, found, found.members, None, offline=True) as release:
        name = found.manifest.family.id
        with locked(release.state / "lock", f"family {name}"):
            items = find_garbage(release)
            size = size_words(sum(item.bytes for item in items))
            _show(output, release, items)
            if items and not dry_run:
                output.confirm(f"Delete {len(items)} things, {size}?", yes)
            gone = [] if dry_run else [item for item in items if delete(release, item)]
    output.result(
        SCHEMA,
        {
            "family": name,
            "dry_run": dry_run,
            "items": [{**item.to_json(release), "deleted": item in gone} for item in items],
            "bytes": sum(item.bytes for item in gone),
        },
    )
    if not items:
        output.note("✓ nothing to delete")
    elif dry_run:
        output.note(f"dry run: {size} could be freed, nothing was deleted")
    else:
        output.note(f"✓ freed {size_words(sum(item.bytes for item in gone))}")


def _show(output: Output, release: Release, items: Sequence[Garbage]) -> None:
    """Weights and work one by one; the many small things by kind."""
    from hubtools.sizes import size_words

    rows: list[tuple[str, ...]] = [
        (item.kind, release.stored(item.path), size_words(item.bytes), item.reason)
        for item in items
        if item.kind in ("weights", "scratch")
    ]
    for kind in ("copy", "log", "record"):
        some = [item for item in items if item.kind == kind]
        if some:
            size = size_words(sum(item.bytes for item in some))
            rows.append((kind, f"{len(some)} of them", size, some[0].reason))
    if rows:
        output.table(("what", "where", "size", "why"), rows)
