"""The author's words are named as such, wherever they stand and whatever headings they hold."""

from __future__ import annotations

import pytest
from card_builders import TEMPLATES, make_card

from hubtools.card.prose import shown_prose
from hubtools.card.render import render_card

SECTIONS = ("summary", "training", "intended_use", "limitations", "notes", "citation", "ethics")


def lowered(text: str) -> str:
    return shown_prose({"notes": text})["notes"]


@pytest.mark.parametrize("kind", ["full", "adapter"])
def test_every_section_of_prose_stands_under_its_mark(kind: str) -> None:
    prose = {name: f"93.2 % on MyBench, says {name}." for name in SECTIONS}
    lines = [
        line
        for line in render_card(make_card(kind=kind, prose=prose), (TEMPLATES,)).splitlines()
        if line and not line.startswith("<!--")
    ]
    for name in SECTIONS:
        above = lines[lines.index(prose[name]) - 1]
        assert "uthor's words" in above
        assert above.startswith("*" if name == "summary" else "#")
    assert (
        "*The author's words, here and under headings marked so; figures in them"
        in lines[lines.index(prose["summary"]) - 1]
    )


def test_what_is_generated_is_not_marked() -> None:
    text = render_card(make_card(prose={}), (TEMPLATES,))
    assert "words" not in text
    only = render_card(make_card(prose={"summary": "x"}), (TEMPLATES,))
    assert "*The author's words; figures in them are not checked:*\n" in only
    below = render_card(make_card(prose={"limitations": "x"}), (TEMPLATES,))
    assert "*Text under headings marked “author's words” is the author's;" in below


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# Results\n\nx\n\n## EM\n\ny", "#### Results\n\nx\n\n##### EM\n\ny"),
        ("Results\n=======\nx\n\nEM\n---\ny", "#### Results\n\nx\n\n##### EM\n\ny"),
        ("##### deep", "##### deep"),
        ("x\n\n---\n\ny\n- a\n---", "x\n\n---\n\ny\n- a\n---"),
        ("```sh\n# comment\n~~~\n## x\n```\n## y", "```sh\n# comment\n~~~\n## x\n```\n#### y"),
        ("#hashtag and # no heading", "#hashtag and # no heading"),
        ("| a |\n|---|\n| b |", "| a |\n|---|\n| b |"),
        ("# a\n###### b", "#### a\n###### b"),
    ],
)
def test_headings_of_prose_start_no_section_of_the_card(text: str, shown: str) -> None:
    assert lowered(text) == shown
    assert lowered(text).count("\n") == text.count("\n")
