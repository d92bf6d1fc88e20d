from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from hubtools.card.tables import Table
from hubtools.card.text import (
    Markdown,
    cell,
    code,
    escape,
    fenced,
    link,
    numbers_in,
    reported_in,
    value_text,
)
from hubtools.card.view import table_lines
from hubtools.facts import Fact, Source, Spread, Subject
from hubtools.sizes import size_words

parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
any_text = st.text(max_size=60)


def shown(inline: Any) -> str:
    """What a reader sees of an inline token, and nothing but text may be in it."""
    kinds = {child.type for child in inline.children}
    assert kinds <= {"text", "text_special"}, kinds
    return "".join(child.content for child in inline.children)


def same(a: str, b: str) -> bool:
    return " ".join(a.split()) == " ".join(b.split())


def visible(value: str) -> str:
    """Control and layout characters become a space; everything else is kept."""
    from hubtools.card.text import _CONTROL

    return _CONTROL.sub(" ", value)


@given(any_text)
@example("a ~ b ~ c")
@example("<script>alert(1)</script> & [x](javascript:y) ![i](z)")
@example("&lt; &amp; &#42; &copy;")
@example("# not a heading")
@example("1. not a list")
@example("- no\n- list")
@example("*a* _b_ __c__ `d` | e ~~f~~ \\ $g$")
def test_escaped_text_shows_exactly_itself(value: str) -> None:
    tokens = parser.parse(escape(value))
    if not visible(value).strip():
        assert tokens == []
        return
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    assert same(shown(tokens[1]), visible(value))


@given(st.lists(st.tuples(any_text, any_text, any_text), min_size=1, max_size=4))
def test_cells_cannot_leave_their_row(rows: list[tuple[str, str, str]]) -> None:
    tokens = parser.parse(table_lines(Table(columns=("a", "b", "c"), rows=tuple(rows))))
    assert tokens[0].type == "table_open"
    assert tokens[-1].type == "table_close"
    cells = [t for t, before in zip(tokens[1:], tokens, strict=False) if before.type == "td_open"]
    assert len(cells) == 3 * len(rows)
    for token, value in zip(cells, (value for row in rows for value in row), strict=True):
        assert same(shown(token), visible(value))


@given(st.text(min_size=1, max_size=40))
def test_code_spans_hold_whatever_they_are_given(value: str) -> None:
    tokens = parser.parse("x " + code(value))
    children = tokens[1].children
    assert children is not None
    assert [child.type for child in children][-1] == "code_inline"
    assert same(children[-1].content, visible(value))


def test_a_fence_is_longer_than_any_inside() -> None:
    tokens = parser.parse(fenced("```\nx\n````\n", "python"))
    assert [token.type for token in tokens] == ["fence"]


def test_only_https_becomes_a_link() -> None:
    assert link("x", "https://example.org/a") == "[x](https://example.org/a)"
    for url in ("javascript:alert(1)", "http://example.org", "https://a b", "https://a)(b"):
        assert not any(
            t.type == "link_open" for t in parser.parseInline(link("x", url))[0].children
        )


def test_markdown_in_a_cell_stays_but_cannot_end_it() -> None:
    assert cell(Markdown("**a** | b\nc")) == r"**a** \| b c"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("EM 0.344 / F1 0.430.", ["0.344", "0.430"]),
        ("dt-4bT-r2e-s50 and Qwen3-4B-Thinking-2507", []),
        ("1,156 of 1156, -0.5, 1e-5", ["1,156", "1156", "-0.5", "1e-5"]),
        ("0.30 ± 0.05 (~20%)", ["0.30", "0.05", "20"]),
    ],
)
def test_numbers_in_text(text: str, found: list[str]) -> None:
    assert numbers_in(text) == found


def fact(value: object, status: str = "measured", quote: str = "", **more: object) -> Fact:
    return Fact(
        "eval.s.em",
        value,
        status,  # type: ignore[arg-type]
        Source("f.json", "0" * 64, "", quote),
        Subject("m", "1" * 64),
        unit="proportion",
        **more,  # type: ignore[arg-type]
    )


def test_a_measured_value_has_three_decimals_and_its_count() -> None:
    spread = Spread("ci", 0.24, 0.466, "Wilson", 64, 0.95)
    said = value_text(fact(22 / 64, k=22, n=64, spread=spread))
    assert said == "0.344 (22/64), 95 % CI 0.240 to 0.466"


def test_a_reported_value_keeps_its_authors_digits() -> None:
    assert value_text(fact(0.3, "reported", "it is 0.30", repeats=6)) == "0.30 (mean of 6 repeats)"
    assert value_text(fact(0.3, "reported", "a third")) == "0.3"


def test_two_samples_are_both_printed() -> None:
    said = value_text(fact([0.275, 0.375], "reported", "0.275 then 0.375"))
    assert said == "0.275 and 0.375 (2 samples of the same checkpoint)"


def test_no_plus_minus_without_its_kind() -> None:
    sd = Spread("sd", 0.25, 0.35, "sample SD", 6)
    assert value_text(fact(0.3, spread=sd)) == "0.300, ± 0.050 (SD of 6)"
    sem = Spread("sem", 0.25, 0.35, "SEM", 6)
    assert value_text(fact(0.3, spread=sem)).endswith("(SEM of 6)")
    ends = Spread("minmax", 0.25, 0.35, "ends", 3)
    assert value_text(fact(0.3, spread=ends)) == "0.300, range 0.250 to 0.350 of 3"


def test_quotes_are_grouped_by_their_source() -> None:
    lines = reported_in(["the card: “a”", "the card: “b”", "", "the card: “a”", "odd words"])
    assert lines == ["Reported in the card: “a”; “b”", "Reported: odd words"]


def test_sizes_read_as_the_hub_writes_them() -> None:
    assert [size_words(n) for n in (0, 999, 1000, 269_000_000, 8_100_000_000)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "269.0 MB",
        "8.1 GB",
    ]
