"""`card.lock.json`: what the tool last wrote, so that edits can be told from output. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubtools.card.blocks import find_blocks
from hubtools.card.front_matter import parse
from hubtools.card.model import CardInput
from hubtools.digests import sha256_bytes

SCHEMA = "hubtools.card-lock/1"


def card_lock(text: str, card: CardInput, *, templates: str) -> dict[str, Any]:
    """The lock of a card that was just rendered.

    Args:
        text: the README.
        card: what it was rendered from.
        templates: digest of the templates it came from.

    Returns:
        JSON object: digest of the README, the text of each block, each front-matter value, and
        the value of each fact the card was made from.
    """
    fields, _ = parse(text)
    return {
        "schema": SCHEMA,
        "repo": card.repo,
        "member": card.member,
        "readme_sha256": sha256_bytes(text.encode()),
        "templates": templates,
        "front_matter": fields,
        "blocks": {
            name: {"text": block.text, "sha256": sha256_bytes(block.text.encode())}
            for name, block in find_blocks(text).items()
        },
        "facts": [
            {
                "id": fact.id,
                "member": fact.subject.member,
                "protocol": fact.protocol,
                "value": list(fact.value) if isinstance(fact.value, tuple) else fact.value,
                "source_sha256": fact.source.sha256,
            }
            for fact in card.facts
        ],
    }


def is_ours(lock: Mapping[str, Any], readme: bytes) -> bool:
    """Whether these README bytes are exactly what the lock says we wrote."""
    return lock.get("schema") == SCHEMA and lock.get("readme_sha256") == sha256_bytes(readme)
