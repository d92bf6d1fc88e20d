"""Differences in words: this checkpoint against the base and against its sisters. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hubtools.card.model import BASE_MEMBER, CardInput, ComparisonRow
from hubtools.card.tables import member_label, metric_title
from hubtools.card.text import Markdown, code, escape, sha8


@dataclass(frozen=True)
class SisterEffects:
    """What tells this checkpoint from its sisters.

    Args:
        sentence: the whole in one line; empty without comparisons.
        beyond: comparisons that show a difference.
        within: the others, which a card shows folded.
    """

    sentence: str
    beyond: tuple[str, ...]
    within: tuple[str, ...]


def base_effects(card: CardInput) -> tuple[str, ...]:
    """This checkpoint minus the base, with its interval and what that interval means."""
    return tuple(_effect(card, row) for row in _mine(card) if BASE_MEMBER in (row.a, row.b))


def sister_effects(card: CardInput) -> SisterEffects:
    """This checkpoint minus each sister it was compared with."""
    rows = [row for row in _mine(card) if BASE_MEMBER not in (row.a, row.b)]
    beyond = tuple(_effect(card, row) for row in rows if not row.within_noise)
    within = tuple(_effect(card, row) for row in rows if row.within_noise)
    others = len({_other(card, row) for row in rows})
    metrics = " and ".join(dict.fromkeys(metric_title(row.metric) for row in rows))
    sentence = ""
    if rows and not beyond:
        sentence = (
            f"No sister differs from this checkpoint beyond noise ({others} compared, {metrics})."
        )
    elif rows:
        sentence = f"Compared with {others} of the sisters ({metrics}), beyond noise:"
    return SisterEffects(sentence, beyond, within)


def _mine(card: CardInput) -> list[ComparisonRow]:
    return [row for row in card.comparisons if card.member in (row.a, row.b)]


def _other(card: CardInput, row: ComparisonRow) -> str:
    return row.b if row.a == card.member else row.a


def _effect(card: CardInput, row: ComparisonRow) -> Markdown:
    sign = 1 if row.a == card.member else -1
    low, high = sorted((sign * row.low, sign * row.high))
    verdict = "no difference beyond noise" if row.within_noise else "a difference beyond noise"
    other = member_label(card, _other(card, row))
    return Markdown(
        f"{escape(metric_title(row.metric))}, this checkpoint minus {other}:"
        f" {sign * row.diff:+z.3f}, {100 * row.level:g} % interval {low:+z.3f} to {high:+z.3f}"
        f" ({escape(row.method)}, n = {row.n}, protocol {code(sha8(row.protocol_id))}):"
        f" **{verdict}**."
    )
