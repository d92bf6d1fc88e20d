"""render: the card, from facts, templates and prose; linted before anyone sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hubtools import __version__
from hubtools.card.lint import lint_card
from hubtools.card.lock import card_lock
from hubtools.card.model import CardInput
from hubtools.card.render import render_card, template_name
from hubtools.digests import canonical_json, sha256_bytes, sha256_json
from hubtools.errors import CheckError
from hubtools.family.manifest import Member
from hubtools.files import write_atomic
from hubtools.hub.model import CARD_LOCK, README
from hubtools.release.cards import card_input, card_json
from hubtools.release.context import BASE, Release
from hubtools.release.evidence import gather
from hubtools.release.refuse import told
from hubtools.release.stages.base import Stage, same_files
from hubtools.resources import template_digest


class Render(Stage):
    """README.md from this member's evidence, with the sisters' figures under their own names."""

    name = "render"
    after = ("verify", "merge", "evaluate")

    def waits_for(self, release: Release, member: Member) -> str:
        """The base's evaluation: a table without its base row would be another card."""
        suites = release.family.manifest.family.suites
        return "evaluate base" if suites and ("evaluate", BASE) not in release.done else ""

    def inputs(self, release: Release, member: Member) -> Mapping[str, Any]:
        """The card's whole content and the templates with all they include."""
        table = release.family.manifest.family
        return {
            "card": sha256_json(card_json(card_of(release, member))),
            "tool": __version__,
            "templates": template_digest(template_name(table.kind), release.templates()),
        }

    def run(self, release: Release, member: Member, key: str) -> Mapping[str, Any]:
        """Render and lint; an error finding stops this member."""
        card = card_of(release, member)
        text = render_card(card, release.templates())
        findings = lint_card(text, card)
        errors = [finding for finding in findings if finding.level == "error"]
        if errors:
            raise CheckError(
                errors[0].id,
                errors[0].message,
                where=errors[0].where or member.repo,
                detail=[f"{finding.id} {finding.message}" for finding in errors[1:]],
                next=errors[0].next or f"hubtools card render {release.family.root}",
            )
        for finding in findings:
            if finding.level == "warning":
                release.note(told(replace(finding, member=member.id)))
        folder = release.state / "cards" / key[:16]
        templates = template_digest(template_name(card.kind), release.templates())
        written = {
            README: text.encode(),
            CARD_LOCK: canonical_json(card_lock(text, card, templates=templates)),
        }
        for name, data in written.items():
            write_atomic(folder / Path(name).name, data)
        return {
            "files": {
                name: {
                    "size": len(data),
                    "sha256": sha256_bytes(data),
                    "source": release.stored(folder / Path(name).name),
                }
                for name, data in written.items()
            },
        }

    def whole(self, release: Release, outputs: Mapping[str, Any]) -> bool:
        """The rendered card is there, unchanged."""
        return same_files(release, outputs["files"])


def card_of(release: Release, member: Member) -> CardInput:
    """The card room's input for this member, from what is done so far."""
    return card_input(release.family, member, gather(release, member))
