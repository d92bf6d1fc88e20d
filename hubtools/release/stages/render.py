"""render: the card, from facts, templates and prose; linted before anyone sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubtools.card.lint import lint_card
from hubtools.card.model import CardInput
from hubtools.card.render import render_card
from hubtools.digests import sha256_bytes, sha256_json
from hubtools.errors import CheckError
from hubtools.family.manifest import Member
from hubtools.files import write_atomic
from hubtools.release.cards import card_input, card_json
from hubtools.release.context import BASE, Release
from hubtools.release.evidence import gather
from hubtools.release.stages.base import Stage
from hubtools.resources import template_digest, template_folders


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
        folders = template_folders(release.family.root)
        return {
            "card": sha256_json(card_json(card_of(release, member))),
            "templates": template_digest(folders),
        }

    def run(self, release: Release, member: Member, key: str) -> Mapping[str, Any]:
        """Render and lint; an error finding stops this member."""
        card = card_of(release, member)
        text = render_card(card, template_folders(release.family.root))
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
        file = release.state / "cards" / key[:16] / "README.md"
        write_atomic(file, text.encode())
        return {
            "path": str(file.relative_to(release.state)),
            "sha256": sha256_bytes(text.encode()),
            "findings": [finding.to_json() for finding in findings],
        }

    def whole(self, release: Release, outputs: Mapping[str, Any]) -> bool:
        """The rendered card is there, unchanged."""
        file = release.state / outputs["path"]
        return file.is_file() and release.digests.sha256(file) == outputs["sha256"]


def card_of(release: Release, member: Member) -> CardInput:
    """The card room's input for this member, from what is done so far."""
    return card_input(release.family, member, gather(release, member))
