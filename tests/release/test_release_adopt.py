"""What of a README on the Hub is a person's, and where it goes."""

from __future__ import annotations

from typing import Any

from hubtools.release.adopt import NOTES, taken

RENDERED = """\
---
license: mit
---

# tiny

<!-- hubtools:begin identity -->
| Kind | full |
<!-- hubtools:end identity -->

## Results

<!-- hubtools:begin results -->
accuracy 0.5
<!-- hubtools:end results -->

## Limitations

<!-- hubtools:begin prose-limitations -->
Knows colours.
<!-- hubtools:end prose-limitations -->
"""
LOCK: dict[str, Any] = {
    "front_matter": {"license": "mit"},
    "blocks": {
        "identity": {"text": "| Kind | full |\n"},
        "results": {"text": "accuracy 0.5\n"},
        "prose-limitations": {"text": "Knows colours.\n"},
    },
}
BLOCK = RENDERED[RENDERED.index("<!-- hubtools:begin prose-limitations") :]


def test_a_readme_by_hand_is_taken_whole_and_its_metadata_is_named() -> None:
    sections, dropped = taken("---\na: b\n---\n# T\n\nText.\n", {})
    assert sections == {NOTES: "## T\n\nText.\n"}
    assert len(dropped) == 1
    assert "metadata a: 'b'" in dropped[0]


def test_an_unedited_card_gives_nothing() -> None:
    assert taken(RENDERED, LOCK) == ({}, [])


def test_an_edited_section_goes_back_to_its_own_file() -> None:
    edited = RENDERED.replace("Knows colours.", "Knows only colours.")
    assert taken(edited, LOCK) == ({"limitations": "Knows only colours.\n"}, [])


def test_a_deleted_section_stays_deleted() -> None:
    assert BLOCK in RENDERED
    assert taken(RENDERED.replace(BLOCK, ""), LOCK) == ({"limitations": "\n"}, [])


def test_text_outside_the_blocks_becomes_notes() -> None:
    assert taken(RENDERED + "\nA remark.\n", LOCK) == ({NOTES: "A remark.\n"}, [])


def test_what_no_prose_can_hold_is_named_and_not_mixed_into_it() -> None:
    edited = RENDERED.replace("accuracy 0.5", "accuracy 0.9").replace(
        "license: mit", "license: mit\ntags: [x]"
    )
    sections, dropped = taken(edited.replace("| Kind | full |\n", ""), LOCK)
    assert sections == {}
    assert [line.split(" (")[0] for line in dropped] == [
        "metadata tags: ['x']",
        "generated part 'identity' was edited; it is rendered from facts",
        "generated part 'results' was edited; it is rendered from facts",
    ]


def test_no_marker_is_taken_even_when_they_do_not_pair_up() -> None:
    sections, _ = taken(RENDERED.replace("<!-- hubtools:end results -->\n", ""), {})
    assert "hubtools:" not in sections[NOTES]
    assert "accuracy 0.5" in sections[NOTES]
    assert "Knows colours." in sections[NOTES]
