"""Cards as files beside the manifest: `rendered/<repo>.md`, with the evidence they came from.

They are committed, so that a change of what is claimed in public can be reviewed as a diff, and
rendered again anywhere: manifest and prose from the folder, the rest from the evidence file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from hubtools.card.lint import lint_card
from hubtools.card.render import render_card
from hubtools.errors import CheckError, Finding
from hubtools.family.manifest import Member
from hubtools.files import write_atomic, write_json
from hubtools.release.cards import card_input
from hubtools.release.context import Release
from hubtools.release.evidence import Evidence, evidence_from_json, gather


@dataclass(frozen=True, slots=True)
class Rendered:
    """One card: its text, the evidence, the lint findings, and whether the file differs."""

    member: Member
    file: Path
    text: str
    evidence: Evidence
    findings: tuple[Finding, ...]
    changed: bool


def render_member(release: Release, member: Member, folder: Path) -> Rendered:
    """Render one card from the store, else from the evidence kept in `folder`, else from neither.

    Raises:
        CheckError: HT520 when kept evidence cannot be read, or a template is wrong.
    """
    name = member.repo.split("/")[1]
    file = folder / f"{name}.md"
    evidence = _evidence(release, member, folder / f"{name}.evidence.json")
    card = card_input(release.family, member, evidence)
    text = render_card(card, release.templates())
    old = file.read_text(encoding="utf-8") if file.is_file() else None
    return Rendered(member, file, text, evidence, tuple(lint_card(text, card)), old != text)


def keep(rendered: Rendered) -> None:
    """Write the card, and its evidence when there is any."""
    write_atomic(rendered.file, rendered.text.encode())
    if rendered.evidence.weights:
        write_json(rendered.file.with_suffix(".evidence.json"), rendered.evidence.to_json())


def _evidence(release: Release, member: Member, kept: Path) -> Evidence:
    if ("merge", member.id) in release.done:
        return gather(release, member)
    if not kept.is_file():
        return Evidence(released=tuple(m.repo for m in release.family.members))
    try:
        return evidence_from_json(json.loads(kept.read_bytes()))
    except (ValueError, KeyError, TypeError) as error:
        raise CheckError(
            "HT520",
            f"kept evidence cannot be read: {error}",
            where=str(kept),
            next=f"git checkout {kept.name}, or hubtools release {release.family.root}",
        ) from error
