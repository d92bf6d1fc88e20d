"""Hand-written sections as a card shows them: named as the author's words. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hubtools.card.text import Markdown

LEVEL = 4
"""Headings of the card itself go down to level 3; one of an author's starts no section of it."""

_HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_OTHER = re.compile(r"[ \t]*(?:[-*+>#|]|\d+[.)]|$)|(?: {4}|\t)")


def shown_prose(sections: Mapping[str, str]) -> dict[str, Markdown]:
    """The sections that say something, their headings below those of the card."""
    return {name: _lowered(text.strip()) for name, text in sections.items() if text.strip()}


def legend(sections: Mapping[str, Markdown]) -> Markdown:
    """One line at the top that says what the author's words are worth; empty without any."""
    if not sections:
        return Markdown("")
    if "summary" not in sections:
        return Markdown(
            "*Text under headings marked “author's words” is the author's; figures in it are not"
            " checked.*"
        )
    marked = ", here and under headings marked so" if len(sections) > 1 else ""
    return Markdown(f"*The author's words{marked}; figures in them are not checked:*")


def _lowered(text: str) -> Markdown:
    """Every heading moved down alike, until the highest is at `LEVEL`; line numbers are kept."""
    lines = text.split("\n")
    places = _headings(lines)
    down = max((LEVEL - level for level, _ in places.values()), default=0)
    for place, (level, underlined) in places.items():
        words = lines[place].strip().lstrip("#").strip()
        lines[place] = f"{'#' * min(level + max(down, 0), 6)} {words}"
        if underlined:
            lines[place + 1] = ""
    return Markdown("\n".join(lines))


def _headings(lines: list[str]) -> dict[int, tuple[int, bool]]:
    """Line → (level, whether a line below makes it a heading), code blocks left out."""
    found: dict[int, tuple[int, bool]] = {}
    fence = ""
    for place, line in enumerate(lines):
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) else fence
        elif mark:
            fence = mark[1]
        elif heading := _HEADING.match(line):
            found[place] = (len(heading[1]), False)
        elif place and _UNDERLINE.fullmatch(line) and not _OTHER.match(lines[place - 1]):
            found[place - 1] = (1 if "=" in line else 2, True)
    return found
