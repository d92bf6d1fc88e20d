"""Which fact may be said by which card, and what makes a figure questionable. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from hubtools.card.model import BASE_MEMBER, FAMILY_MEMBER, CardInput, MemberRow
from hubtools.facts import Fact

REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_NOT_METRICS = {"tokens", "failures", "cut_off", "seconds", "tiers"}
MACRO = "macro"


def is_repo_id(name: str) -> bool:
    """Whether `name` can be a Hub repo; a path, a URL or a bare word cannot."""
    return (
        REPO_ID.fullmatch(name) is not None
        and len(name) <= 96
        and "--" not in name
        and ".." not in name
        and not name.endswith((".git", "-", "."))
    )


def is_commit(revision: str) -> bool:
    """Whether `revision` is a full commit id, the only kind that pins anything."""
    return re.fullmatch(r"[0-9a-f]{40}", revision) is not None


def member_row(card: CardInput, member: str) -> MemberRow | None:
    """The family's row of a member; None for base and for checkpoints outside the family."""
    return next((row for row in card.members if row.member == member), None)


def suite_metric(fact: Fact) -> tuple[str, str, str] | None:
    """`eval.<suite>.<metric>[.<variant>]` taken apart; None for any other fact.

    The mean over categories, `eval.<suite>.macro.<metric>`, is the metric's variant `MACRO`.
    """
    parts = fact.id.split(".", 3)
    if parts[0] != "eval" or len(parts) < 3 or parts[2] in _NOT_METRICS:
        return None
    if parts[2] == MACRO and len(parts) > 3:
        return parts[1], parts[3], MACRO
    return parts[1], parts[2], parts[3] if len(parts) > 3 else ""


def has_evidence(card: CardInput, fact: Fact) -> bool:
    """Whether a measured fact is about the weights that its member has now.

    Base and checkpoints outside the family carry no digest here, so theirs are taken as they are.
    """
    if fact.status != "measured":
        return False
    if fact.subject.member == card.member:
        return bool(card.weights) and fact.subject.weights == card.weights
    row = member_row(card, fact.subject.member)
    return row is None or not row.weights or fact.subject.weights == row.weights


def is_own(card: CardInput, fact: Fact) -> bool:
    """Whether the fact is about this card's checkpoint (status `measured`: these very weights)."""
    if fact.subject.member != card.member:
        return False
    return fact.status != "measured" or has_evidence(card, fact)


def own_metrics(card: CardInput) -> tuple[Fact, ...]:
    """What may enter this repo's metadata: this checkpoint's measured evaluation facts."""
    listed = {suite.protocol_id: suite.metrics for suite in card.suites}
    return tuple(
        fact
        for fact in card.facts
        if (name := suite_metric(fact)) is not None
        and fact.status == "measured"
        and is_own(card, fact)
        and fact.n is not None
        and fact.protocol
        and name[1] in listed.get(fact.protocol, (name[1],))
    )


def in_family(card: CardInput, fact: Fact) -> bool:
    """Whether the fact is about this checkpoint or about the family as a whole."""
    return fact.subject.member in (card.member, FAMILY_MEMBER)


def is_other(card: CardInput, fact: Fact) -> bool:
    """Whether the fact is about another checkpoint: a sister, or one outside the family."""
    return fact.subject.member not in (card.member, BASE_MEMBER, FAMILY_MEMBER)


def possible_fraction(shown: str, n: int) -> bool | None:
    """Whether some k of n rounds to the shown proportion.

    Returns:
        None when n is so large that every value has a k (then nothing can be concluded).
    """
    digits = len(shown.partition(".")[2])
    if n >= 10**digits:
        return None
    value = float(shown)
    unit = 10.0**-digits
    near = (math.floor(value * n), math.ceil(value * n))
    return any(abs(k / n - value) <= unit / 2 * (1 + 1e-9) for k in near)


def flattened(protocol: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Protocol fields as dotted name → text, nested mappings opened."""
    flat: dict[str, str] = {}
    for key, value in protocol.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple):
            flat[f"{prefix}{key}"] = ", ".join(map(str, value)) or "none"
        else:
            flat[f"{prefix}{key}"] = "none" if value is None or value == "" else str(value)
    return flat


def protocol_fields(card: CardInput, protocol: str) -> dict[str, str]:
    """What is known about a protocol: from its suite, or from the facts that describe it."""
    for suite in card.suites:
        if suite.protocol_id == protocol:
            return flattened(suite.protocol)
    return {
        fact.id.split(".", 2)[2].replace("_", " "): str(fact.value)
        for fact in card.facts.with_prefix("protocol")
        if fact.protocol == protocol and fact.id.count(".") >= 2
    }


def differing(a: Mapping[str, str], b: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(field, in a, in b) wherever two protocols differ or one is silent."""
    return [
        (field, a.get(field, "not stated"), b.get(field, "not stated"))
        for field in dict.fromkeys((*a, *b))
        if a.get(field) != b.get(field)
    ]
