"""Rules about hand-written text: whose numbers it says, and what was left unfinished. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hubtools.card.blocks import PROSE_PREFIX, find_blocks, outside
from hubtools.card.lint_claims import known_values
from hubtools.card.lint_figures import unfounded
from hubtools.card.model import BASE_MEMBER, CardInput
from hubtools.card.rules import is_own, member_row
from hubtools.card.text import number, numbers_in, values_of
from hubtools.errors import Finding

_PLACEHOLDERS = re.compile(
    r"\{\s*(?:\.\.\.|…)\s*\}|more information needed|\{\{.*?\}\}|\{%|\b(?:TODO|FIXME|TBD|XXX)\b"
    r"|lorem ipsum|<your[ _-]|\bYOUR_[A-Z]+|\band \.\.\.\s*\}",
    re.IGNORECASE,
)
_UNSAFE = re.compile(
    r"<\s*(?:script|iframe|object|embed|form|style|link|meta)\b|javascript:|<[^>]*\son\w+\s*=",
    re.IGNORECASE,
)
_KIND = re.compile(
    r"\b(?:SD|SEM|CI|sd|std)\b|deviation|standard error|interval|range|confidence", re.IGNORECASE
)
_PLUS_MINUS = re.compile(r"\d\s*(?:±|\+/-|\\pm)\s*\d")
_TEACHER = re.compile(r"\bteacher\b|\bdistill\w*", re.IGNORECASE)


@dataclass(frozen=True)
class _Paragraph:
    """Hand-written lines that stand together: their section, file, and first line in it."""

    section: str
    text: str
    file: str
    line: int

    def place(self, offset: int = 0) -> str:
        """`file:line` of a character of the text, for messages."""
        return f"{self.file}:{self.line + self.text.count(chr(10), 0, offset)}"


def text_findings(card: CardInput, body: str, skipped: int) -> Iterator[Finding]:
    """The rules about prose and about what stands outside the marked blocks.

    Args:
        card: what the text is held against.
        body: the README without front matter.
        skipped: how many lines that took away.
    """
    for paragraph in _paragraphs(body, skipped):
        yield from _paragraph(card, paragraph)


def _paragraphs(body: str, skipped: int) -> Iterator[_Paragraph]:
    prose = {
        block.line: (name.removeprefix(PROSE_PREFIX), block.text.count("\n"))
        for name, block in find_blocks(body).items()
        if name.startswith(PROSE_PREFIX)
    }
    lines = outside(body).split("\n")
    start = 0
    for place in range(len(lines) + 1):
        if place < len(lines) and lines[place].strip():
            continue
        if start < place:
            yield _named(lines, start, place, prose, skipped)
        start = place + 1


def _named(
    lines: list[str], start: int, end: int, prose: dict[int, tuple[str, int]], skipped: int
) -> _Paragraph:
    line = start + 1
    for first, (section, count) in prose.items():
        if first <= line < first + count:
            file = f"prose/{section}.md"
            return _Paragraph(section, "\n".join(lines[start:end]), file, line - first + 1)
    return _Paragraph("", "\n".join(lines[start:end]), "README.md", line + skipped)


def _paragraph(card: CardInput, paragraph: _Paragraph) -> Iterator[Finding]:
    found = _PLACEHOLDERS.search(paragraph.text)
    if found:
        yield _finding(
            card, "HT021", "error", f"placeholder {found[0]!r} was left", paragraph, "fill it in"
        )
    unsafe = _UNSAFE.search(paragraph.text)
    if unsafe:
        yield _finding(
            card, "HT022", "error", f"active markup {unsafe[0]!r}", paragraph, "delete it"
        )
    if _PLUS_MINUS.search(paragraph.text) and not _KIND.search(paragraph.text):
        yield _finding(
            card,
            "HT017",
            "error",
            "a ± without its kind (SD, SEM or interval)",
            paragraph,
            "say what kind of spread it is and of how many values, or delete it",
        )
    yield from _foreign_numbers(card, paragraph)
    yield from _unfounded(card, paragraph)
    yield from _mixed_table(card, paragraph)
    yield from _teacher_words(card, paragraph)


def _foreign_numbers(card: CardInput, paragraph: _Paragraph) -> Iterator[Finding]:
    """HT014: another checkpoint's value, as headline or without that checkpoint's name."""
    values = list(known_values(card))
    own = {value for fact, _, value in values if is_own(card, fact)}
    own |= {value for fact, _, value in values if fact.subject.member == BASE_MEMBER}
    for token, value in _values_in(paragraph.text):
        if value in own:
            continue
        others = dict.fromkeys(f.subject.member for f, _, v in values if v == value)
        if not others:
            continue
        named = any(_is_named(card, member, paragraph.text) for member in others)
        if paragraph.section == "summary" or not named:
            yield _finding(
                card,
                "HT014",
                "error",
                f"{token} is a value of {' or '.join(others)}, not of {card.member}",
                paragraph,
                "delete it (the card shows it under Sister checkpoints), or name that checkpoint",
            )


def _unfounded(card: CardInput, paragraph: _Paragraph) -> Iterator[Finding]:
    """HT015: what reads as a result, but equals no fact of this card."""
    for figure, offset in unfounded(card, paragraph.text):
        yield _finding(
            card,
            "HT015",
            "warning",
            f"{figure} reads as a result, but no fact of this card gives it",
            paragraph,
            "delete it, evaluate, or give it with its source in the family's reported figures",
            offset,
        )


def _values_in(text: str) -> Iterator[tuple[str, float]]:
    """Numbers that can be scores: with a decimal point, or in percent."""
    for found in re.finditer(r"([+-]?\d[\d,.]*\d|\d)\s*(%?)", text):
        for token in numbers_in(found[1]):
            if found[2]:
                yield f"{token} %", round(number(token) / 100, 6)
                yield f"{token} %", number(token)
            elif "." in token:
                yield token, number(token)


def _is_named(card: CardInput, member: str, text: str) -> bool:
    row = member_row(card, member)
    names = [member, *member.split("/")]
    if row is not None:
        names += [row.repo.rpartition("/")[2]]
        if row.optimizer_step is not None:
            names.append(f"step {row.optimizer_step}")
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) for name in names if name)


def _mixed_table(card: CardInput, paragraph: _Paragraph) -> Iterator[Finding]:
    """HT041: a hand-written table whose values have no protocol in common."""
    if not paragraph.text.lstrip().startswith("|"):
        return
    known: dict[float, set[str]] = {}
    for fact, _, value in known_values(card):
        known.setdefault(value, set()).add(fact.protocol)
    protocols = [known[v] for _, v in _values_in(paragraph.text) if v in known]
    if protocols and not set.intersection(*protocols):
        yield _finding(
            card,
            "HT041",
            "error",
            "one table holds values of two protocols",
            paragraph,
            "delete the table; the card shows one table a protocol",
        )


def _teacher_words(card: CardInput, paragraph: _Paragraph) -> Iterator[Finding]:
    facts = [
        f for f in card.facts.with_prefix("teacher") if f.id.endswith((".requested", ".reported"))
    ]
    roles = (card.provenance.verdict or {}).get("roles", {}).values()
    requested = {str(v) for f in facts if f.id.endswith(".requested") for v in values_of(f)}
    requested |= {name for role in roles for name in role.get("requested", {})}
    reported = {str(v) for f in facts if f.id.endswith(".reported") for v in values_of(f)}
    reported |= {name for role in roles for name in role.get("reported", {})}
    words = paragraph.text
    for alias in sorted(requested - reported):
        if alias in words and not any(name in words for name in reported):
            yield _finding(
                card,
                "HT051",
                "warning",
                f"{alias!r} was requested; name the model that answered",
                paragraph,
                f"write {' or '.join(sorted(reported)) or 'that the answering model is unknown'}",
            )
    found = None if words.startswith("#") else _TEACHER.search(words)
    if found and card.provenance.status == "none" and not facts:
        yield _finding(
            card,
            "HT050",
            "warning",
            f"the text says {found[0]!r}, but the family declares no provenance",
            paragraph,
            "declare [provenance] in family.toml, or delete the words",
        )


def _finding(
    card: CardInput,
    id: str,
    level: Literal["error", "warning"],
    message: str,
    paragraph: _Paragraph,
    fix: str,
    offset: int = 0,
) -> Finding:
    return Finding(id, level, message, paragraph.place(offset), fix, card.member)
