"""`lint_card`: what must not stand on a card, with the rule's id and the line. Pure.

Hand-written text is searched for other checkpoints' numbers, placeholders and unsafe markup;
front matter is held against this checkpoint's own measured facts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hubtools.card.blocks import PROSE_PREFIX, find_blocks
from hubtools.card.front_matter import metadata, parse
from hubtools.card.lint_claims import (
    declared_findings,
    fact_findings,
    known_values,
    teacher_findings,
)
from hubtools.card.lint_text import text_findings
from hubtools.card.model import CardInput
from hubtools.card.rules import own_metrics, suite_metric
from hubtools.card.text import number, numbers_in, shown_values
from hubtools.errors import CheckError, Finding
from hubtools.facts import Fact

_HUB_LINK = re.compile(r"huggingface\.co/([\w.-]+/[\w.-]+)")


def lint_card(text: str, card: CardInput) -> list[Finding]:
    """Everything wrong with a rendered (or hand-edited) README of this member.

    Returns:
        Findings in the order: declarations, facts, teacher, front matter, text.
    """
    findings = [*declared_findings(card), *fact_findings(card), *teacher_findings(card)]
    try:
        fields, body = parse(text)
        blocks = find_blocks(text)
    except CheckError as error:
        return [
            *findings,
            Finding(error.id, "error", error.message, error.where, error.next, card.member),
        ]
    findings += _front_matter(card, fields)
    front_lines = text.count("\n") - body.count("\n")
    for name, block in blocks.items():
        if name.startswith(PROSE_PREFIX):
            findings += _unclosed(card, name.removeprefix(PROSE_PREFIX), block.text)
    findings += text_findings(card, body, front_lines)
    findings += _links(card, body, front_lines)
    return findings


def _front_matter(card: CardInput, fields: dict[str, Any]) -> Iterator[Finding]:
    """HT012, HT014, HT067: metadata that says other than this checkpoint's facts."""
    expected = metadata(card)
    for key in ("license", "base_model", "library_name", "base_model_relation"):
        if fields.get(key) != expected.get(key):
            said = f"{key}: {fields.get(key)!r} in the card, {expected.get(key)!r} declared"
            yield Finding("HT067", "error", said, "README.md", "hubtools card render", card.member)
    values = list(known_values(card))
    allowed = {_metric_value(f, shown) for f in own_metrics(card) for shown in shown_values(f)}
    for metric, value in _metadata_values(fields):
        if (metric, value) in allowed:
            continue
        others = dict.fromkeys(f.subject.member for f, _, v in values if v == value)
        others.pop(card.member, None)
        whose = f"is a value of {' or '.join(others)}" if others else "has no evidence here"
        yield Finding(
            "HT014" if others else "HT012",
            "error",
            f"model-index: {metric} {value} {whose}",
            "README.md",
            "hubtools card render",
            card.member,
        )


def _metric_value(fact: Fact, shown: str) -> tuple[str, float]:
    return (suite_metric(fact) or ("", "", ""))[1], float(shown)


def _metadata_values(fields: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for entry in _dicts(fields.get("model-index")):
        for result in _dicts(entry.get("results")):
            for metric in _dicts(result.get("metrics")):
                value = metric.get("value")
                for item in value if isinstance(value, list) else [value]:
                    if isinstance(item, int | float) and not isinstance(item, bool):
                        yield str(metric.get("type")), float(item)
                    elif isinstance(item, str):
                        yield from ((str(metric.get("type")), number(t)) for t in numbers_in(item))


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _unclosed(card: CardInput, section: str, text: str) -> Iterator[Finding]:
    fences = re.findall(r"^ {0,3}(`{3,}|~{3,})", text, re.MULTILINE)
    if len(fences) % 2:
        yield Finding(
            "HT023",
            "error",
            "a code fence is not closed; it would swallow the rest of the card",
            f"prose/{section}.md",
            f"close the fence in prose/{section}.md",
            card.member,
        )


def _links(card: CardInput, body: str, skipped: int) -> Iterator[Finding]:
    unreleased = {r.repo for r in card.members if not r.released and r.member != card.member}
    for place, line in enumerate(body.split("\n"), start=skipped + 1):
        for repo in _HUB_LINK.findall(line):
            if repo.rstrip(".") in unreleased:
                yield Finding(
                    "HT070",
                    "error",
                    f"link to {repo}, which is not released",
                    f"README.md:{place}",
                    "name it without a link until it is released",
                    card.member,
                )
