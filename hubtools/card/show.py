"""A card on the terminal: rich's Markdown, which is near to the Hub's page but not the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hubtools.card.front_matter import parse

if TYPE_CHECKING:
    from rich.console import Group

_COMMENT = re.compile(r"^<!--.*?-->[ \t]*\n?", re.MULTILINE | re.DOTALL)
_FOLD = re.compile(r"</?(?:details|summary)>")
NOTE = "terminal approximation; the Hub's page looks different"


def plain_markdown(text: str) -> str:
    """The body without front matter, markers and folding tags: what is worth reading."""
    _, body = parse(text)
    without = _FOLD.sub("", _COMMENT.sub("", body))
    return re.sub(r"</?code>", "`", without).strip() + "\n"


def terminal_card(text: str) -> Group:
    """A rich renderable: metadata, then the body, then what this view is worth.

    Raises:
        CheckError: HT084 when the front matter cannot be read.
    """
    from rich.console import Group
    from rich.markdown import Markdown
    from rich.rule import Rule
    from rich.table import Table
    from rich.text import Text

    fields, _ = parse(text)
    table = Table(show_header=False, box=None)
    for key, value in fields.items():
        shown = f"{len(value)} entries" if key == "model-index" else value
        words = ", ".join(map(str, shown)) if isinstance(shown, list) else str(shown)
        table.add_row(Text(key, style="bold"), Text(words))
    return Group(table, Rule(), Markdown(plain_markdown(text)), Rule(Text(NOTE, style="dim")))
