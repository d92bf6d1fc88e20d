"""What of a README on the Hub is a person's."""

from __future__ import annotations

from hubtools.release.adopt import _body as body

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
WRITTEN = {
    "identity": "| Kind | full |\n",
    "results": "accuracy 0.5\n",
    "prose-limitations": "Knows colours.\n",
}


def test_a_readme_by_hand_is_taken_whole_without_its_front_matter() -> None:
    assert body("---\na: b\n---\n# T\r\n\r\nText.\n", {}) == "## T\n\nText.\n"


def test_of_a_rendered_card_only_the_edits_are_taken() -> None:
    assert body(RENDERED, WRITTEN) == "\n"
    assert body(RENDERED + "\nA remark.\n", WRITTEN) == "A remark.\n"
    edited = RENDERED.replace("Knows colours.", "Knows only colours.")
    assert body(edited, WRITTEN) == "### Limitations\n\nKnows only colours.\n"
    fixed = RENDERED.replace("accuracy 0.5", "accuracy 0.4, says a person")
    assert body(fixed, WRITTEN) == "### Results\n\naccuracy 0.4, says a person\n"


def test_no_marker_is_taken_even_when_they_do_not_pair_up() -> None:
    broken = RENDERED.replace("<!-- hubtools:end results -->\n", "")
    text = body(broken, WRITTEN)
    assert "hubtools:" not in text
    assert "accuracy 0.5" in text
    assert "Knows colours." in text
