from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from card_builders import TEMPLATES, make_card
from hypothesis import given
from hypothesis import strategies as st

from hubtools.card.blocks import begin, end, find_blocks, outside
from hubtools.card.model import CardInput
from hubtools.card.render import render_card
from hubtools.errors import CheckError


def override(tmp_path: Path, text: str, name: str = "checkpoint.md.j2") -> tuple[Path, Path]:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return tmp_path, TEMPLATES


def refusal(tmp_path: Path, text: str, name: str = "checkpoint.md.j2") -> CheckError:
    with pytest.raises(CheckError) as caught:
        render_card(make_card(), override(tmp_path, text, name))
    return caught.value


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\n{{ card.absent }}\n", 2),
        ("a\n\n{% for x in %}\n", 3),
        ("{{ card.title | nofilter }}", 1),
        ("a\n{{ ''.__class__.__mro__ }}", 2),
        ("a\n{{ 1 // 0 }}", 2),
        ("a\n{{ card.title + 1 }}", 2),
        ('{% extends "checkpoint.md.j2" %}', None),
    ],
)
def test_a_failing_template_is_named_with_its_line(
    tmp_path: Path, text: str, line: int | None
) -> None:
    error = refusal(tmp_path, text)
    assert error.id == "HT081"
    assert "checkpoint.md.j2" in error.where
    if line is not None:
        assert error.where.endswith(f"checkpoint.md.j2:{line}")
    assert "<" not in error.where


def test_an_error_inside_a_partial_names_the_partial(tmp_path: Path) -> None:
    error = refusal(tmp_path, "x\n{{ nothing }}\n", "partials/usage.md.j2")
    assert error.where.endswith("partials/usage.md.j2:2")


def test_an_absent_template_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path, '{% include "own.md.j2" %}').id == "HT080"
    assert "own.md.j2" in refusal(tmp_path, '{% include "own.md.j2" %}').message
    assert refusal(tmp_path, '{% include "../../secret" %}').id == "HT080"
    with pytest.raises(CheckError, match=r"no template checkpoint\.md\.j2"):
        render_card(make_card(), (tmp_path / "nowhere",))


def test_one_block_can_be_changed_and_the_rest_kept(tmp_path: Path) -> None:
    text = '{% extends "base/checkpoint.md.j2" %}\n{% block usage %}\nAsk us.\n{% endblock %}\n'
    changed = render_card(make_card(), override(tmp_path, text))
    bundled = render_card(make_card(), (TEMPLATES,))
    assert "Ask us." in changed
    assert "from_pretrained" not in changed
    assert set(find_blocks(bundled)) - set(find_blocks(changed)) == {"usage"}


def test_a_partial_can_be_replaced(tmp_path: Path) -> None:
    text = render_card(make_card(), override(tmp_path, "Mine.\n", "partials/ending.md.j2"))
    assert text.endswith("Mine.\n")


def test_an_own_template_is_safe_by_default(tmp_path: Path) -> None:
    card = make_card(title="<i>x</i> | *y*")
    assert render_card(card, override(tmp_path, "{{ card.title }}\n")) == (
        "&lt;i&gt;x&lt;/i&gt; \\| \\*y\\*\n"
    )


def test_markers_in_prose_are_refused(card: Callable[..., CardInput]) -> None:
    with pytest.raises(CheckError) as caught:
        render_card(card(prose={"notes": "x\n<!-- hubtools:end usage -->"}), (TEMPLATES,))
    assert (caught.value.id, caught.value.where) == ("HT083", "prose/notes.md")


def test_odd_prose_names_become_sections(card: Callable[..., CardInput]) -> None:
    text = render_card(card(prose={"ethics_review": "Done."}), (TEMPLATES,))
    head = "## Ethics review (author's words)"
    assert f"{head}\n\n<!-- hubtools:begin prose-ethics_review -->\nDone.\n" in text


@pytest.mark.parametrize(
    "text",
    [
        f"{begin('a')}\nx\n",
        f"x\n{end('a')}\n",
        f"{begin('a')}\n{begin('b')}\n{end('b')}\n{end('a')}\n",
        f"{begin('a')}\n{end('a')}\n{begin('a')}\n{end('a')}\n",
        f"{begin('a')}\n{end('b')}\n",
    ],
)
def test_markers_must_pair_up(text: str) -> None:
    with pytest.raises(CheckError, match="do not pair up") as caught:
        find_blocks(text)
    assert caught.value.id == "HT082"


names = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
inner = st.text(st.characters(exclude_characters="<\r"), max_size=30)


@given(st.dictionaries(names, inner, max_size=4), inner)
def test_blocks_are_read_back_and_the_rest_keeps_its_lines(
    blocks: dict[str, str], around: str
) -> None:
    text = (
        around
        + "\n"
        + "".join(
            f"{begin(name)}\n{text}\n{end(name)}\n{around}\n" for name, text in blocks.items()
        )
    )
    found = find_blocks(text)
    assert {name: block.text for name, block in found.items()} == {
        name: text + "\n" for name, text in blocks.items()
    }
    for block in found.values():
        assert text.split("\n")[block.line - 1] == block.text.split("\n")[0]
    rest = outside(text)
    assert rest.count("\n") == text.count("\n")
    assert [line for line in rest.split("\n") if line] == [
        line for line in (around + "\n").split("\n") * (len(blocks) + 1) if line
    ] or any(name.startswith("prose-") for name in blocks)
