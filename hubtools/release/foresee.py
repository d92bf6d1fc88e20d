"""What will be said against the cards, told before any work: prose, declarations, stray files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hubtools.card.lint import lint_card
from hubtools.card.render import render_card
from hubtools.checkpoint.carry import carried_files, publishable_files
from hubtools.checkpoint.inspecting.disclosed import published_leaks
from hubtools.errors import CheckError, Finding
from hubtools.family.manifest import Family, Member
from hubtools.provenance.secrets import scan_text
from hubtools.release.cards import card_input, prose_files
from hubtools.release.context import Release
from hubtools.release.evidence import gather
from hubtools.release.ingested import ingest_job, is_ingested

REPORTED = "reported.toml"
_NEEDS_EVIDENCE = {"HT012", "HT013", "HT015", "HT040", "HT050", "HT051", "HT070"}
_SAID_BY_CHECK = {"HT060"}


def foreseen(release: Release, member: Member) -> Iterator[Finding]:
    """Findings on the card as far as it can be rendered now, without what stages have yet to find.

    Raises:
        CheckError: HT080 to HT083, a template or a marker that is wrong.
    """
    card = card_input(release.family, member, gather(release, member))
    text = render_card(card, release.templates())
    for finding in lint_card(text, card):
        unstated = finding.id == "HT061" and not card.license  # HT513 says it once
        if finding.id not in _NEEDS_EVIDENCE | _SAID_BY_CHECK and not unstated:
            yield finding


def secrets_in_prose(family: Family) -> Iterator[Finding]:
    """HT250 with the line of the prose itself; unreadable files are told by `foreseen`."""
    for file in prose_files(family):
        try:
            yield from scan_text(str(file), file.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue


def disclosed(release: Release, member: Member) -> list[Finding]:
    """HT175 for what the member's configs and tokenizer would tell about their author's machine.

    Of a checkpoint that is not whole nothing is said here.
    """
    table, base, checkpoint = release.family.manifest.family, release.base_path(), member.checkpoint
    if checkpoint is None:
        return []
    try:
        if is_ingested(checkpoint):
            job = ingest_job(release, member)
            files = {file.name: file for file in job.files if file not in job.source.files}
        elif table.kind != "merged":
            files = publishable_files(checkpoint, table.kind)
        elif base is not None and base.is_dir():
            files = carried_files(checkpoint, base)
        else:
            return []
    except CheckError:
        return []
    found = published_leaks(files, base=table.base.repo, revision=table.base.revision or "")
    return [replace(finding, member=member.id) for finding in found]


def strays(family: Family) -> Iterator[Finding]:
    """Files that look like part of the family and that nothing reads."""
    root = family.resolve(family.manifest.card.prose)
    members = {f"{member.arm}-{member.step}" for member in family.members}
    for folder in sorted(path for path in root.glob("*") if path.is_dir()):
        if folder.name not in members:
            yield Finding(
                "HT525",
                "warning",
                f"no member is called {folder.name}: its prose is not used",
                where=str(folder),
                next=f"rename it to one of: {', '.join(sorted(members))}",
            )
    reported = family.root / REPORTED
    if reported.is_file() and not family.manifest.card.reported:
        yield Finding(
            "HT525",
            "warning",
            "reported figures that the manifest does not name are not used",
            where=str(reported),
            next=f'add [card] reported = "{REPORTED}" to {family.path.name}',
        )
