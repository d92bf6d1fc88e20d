"""`hubtools card`: render cards to files, show one, adopt one that was written by hand."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubtools.cli import complete
from hubtools.cli.hubs import opened
from hubtools.cli.options import hub_option, with_output
from hubtools.cli.output import Output
from hubtools.errors import CheckError

if TYPE_CHECKING:
    from hubtools.errors import Finding
    from hubtools.family.manifest import Member
    from hubtools.release.context import Release

family_option = click.option(
    "--family", type=click.Path(path_type=Path), help="Folder that holds family.toml."
)


@click.group("card", short_help="Render, show and adopt model cards.")
def command() -> None:
    """Render, show and adopt model cards."""


@command.command("render")
@click.argument("targets", nargs=-1, shell_complete=complete.targets)
@family_option
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Folder; default: rendered/.")
@click.option("--check", is_flag=True, help="Write nothing; exit 3 when a card would change.")
@click.option(
    "--known", multiple=True, metavar="ID", help="Error finding that is no news; may be repeated."
)
@with_output
def render(
    output: Output,
    targets: tuple[str, ...],
    family: Path | None,
    out: Path | None,
    check: bool,
    known: tuple[str, ...],
) -> None:
    """Render cards beside their manifest, from facts that are known; nothing is run.

    Figures come from finished stages, else from the evidence kept beside the rendered card. Exit
    code 3 means that a card has an error with which a release would stop; it is written all the
    same. --known names errors that others have published and nobody can mend.
    """
    from hubtools.cli.planview import print_finding
    from hubtools.release.rendered import keep, render_member

    release, members = _opened(output, targets, family)
    folder = out or release.family.root / "rendered"
    cards = [render_member(release, member, folder) for member in members]
    for card in cards:
        for finding in card.findings:
            print_finding(output, finding)
        if not check:
            keep(card)
        output.line(str(card.file))
        output.note(
            f"{'!' if card.changed and check else '✓'} {card.member.id} {_word(card.changed)}"
        )
    rows = [
        {"member": c.member.id, "file": str(c.file), "changed": c.changed,
         "findings": [f.to_json() for f in c.findings]}
        for c in cards
    ]  # fmt: skip
    output.result("hubtools.card-render/1", {"cards": rows})
    stale = [str(card.file) for card in cards if card.changed]
    if check and stale:
        raise CheckError(
            "HT521",
            f"{len(stale)} rendered cards are not what their facts give now",
            where=stale[0],
            detail=stale[1:],
            next=f"hubtools card render {release.family.root}, then look at the diff",
        )
    _fail_if([f for c in cards for f in c.findings if f.level == "error" and f.id not in known])


@command.command("show")
@click.argument("target", shell_complete=complete.targets)
@family_option
@with_output
def show(output: Output, target: str, family: Path | None) -> None:
    """Show one card: as Markdown when piped, approximated on a terminal."""
    import sys

    from hubtools.release.rendered import render_member

    release, members = _opened(output, (target,), family)
    card = render_member(release, members[0], release.family.root / "rendered")
    output.result("hubtools.card-show/1", {"member": card.member.id, "text": card.text})
    if sys.stdout.isatty() and not output.json:
        from rich.console import Console

        from hubtools.card.show import terminal_card

        Console().print(terminal_card(card.text))
    else:
        output.line(card.text.rstrip("\n"))


@command.command("adopt")
@click.argument("target", shell_complete=complete.targets)
@family_option
@hub_option
@with_output
def adopt(output: Output, target: str, family: Path | None, hub: str | None) -> None:
    """Keep a hand-written README's text as prose, so that a release may render the card.

    The Hub is not changed.
    """
    from hubtools.release import adopt as adopting
    from hubtools.release.locate import locate

    found, members = locate((target,), family, Path.cwd())
    with opened(output, found, members, hub) as release:
        taken = adopting.adopt(release, members[0])
    files = [str(file) for file in taken.files]
    result = {"member": members[0].id, "files": files, "dropped": list(taken.dropped)}
    output.result("hubtools.card-adopt/1", {**result, "copy": str(taken.copy)})
    for file in files:
        output.line(file)
    for line in taken.dropped:
        output.note(f"! not taken over: {line}")
    kept = f"kept {len(files)} sections as prose" if files else "no text of it is a person's"
    output.note(f"✓ {kept}; the whole README is in {taken.copy}")
    output.note(f"  next: look at them, then: hubtools release {members[0].repo}")


def _opened(
    output: Output, targets: tuple[str, ...], family: Path | None
) -> tuple[Release, tuple[Member, ...]]:
    from hubtools.release.base import compare_base, find_base
    from hubtools.release.context import open_release
    from hubtools.release.engine import walk
    from hubtools.release.locate import locate
    from hubtools.settings import resolve

    found, members = locate(targets, family, Path.cwd())
    release = open_release(
        found,
        members,
        clock=time.time,
        hub=resolve({"hub": None}).hub,
        note=output.note,
        project=Path.cwd(),
    )
    if found.manifest.inputs is not None and all(
        member.checkpoint is not None and member.checkpoint.is_dir() for member in members
    ):
        find_base(release)
        compare_base(release)
        walk(release, execute=False)
    return release, members


def _fail_if(errors: list[Finding]) -> None:
    """End with exit code 3 after the answer.

    Raises:
        CheckError: the first error, the others as details.
    """
    if errors:
        first, *others = errors
        raise CheckError(
            first.id,
            f"{first.member}: {first.message}",
            where=first.where,
            detail=[f"{f.member}: {f.message} ({f.where}) [{f.id}]" for f in others],
            next=first.next,
        )


def _word(changed: bool) -> str:
    return "changed" if changed else "unchanged"
