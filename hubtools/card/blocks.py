"""Marked blocks of a README: what the tool wrote, told apart from what people wrote. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hubtools.errors import CheckError

PROSE_PREFIX = "prose-"
_MARKER = re.compile(r"^<!-- hubtools:(begin|end) ([a-z0-9_-]+) -->[ \t]*\r?$", re.MULTILINE)
_LOOSE = re.compile(r"<!--\s*hubtools:", re.IGNORECASE)


@dataclass(frozen=True)
class Block:
    """One marked block: name, the text between its markers, the line that text starts on."""

    name: str
    text: str
    line: int


def begin(name: str) -> str:
    """The line that opens a block."""
    return f"<!-- hubtools:begin {name} -->"


def end(name: str) -> str:
    """The line that closes a block."""
    return f"<!-- hubtools:end {name} -->"


def has_marker(text: str) -> bool:
    """Whether hand-written text holds something that would read as one of our markers."""
    return _LOOSE.search(text) is not None


def find_blocks(text: str, where: str = "README.md") -> dict[str, Block]:
    """The blocks of a README by name, in their order.

    Raises:
        CheckError: HT082 when markers do not pair up, nest, or a name comes twice.
    """
    found: dict[str, Block] = {}
    opened: re.Match[str] | None = None
    for marker in _MARKER.finditer(text):
        line = text.count("\n", 0, marker.start()) + 1
        kind, name = marker.groups()
        if kind == "begin":
            if opened is not None or name in found:
                raise _unpaired(f"block {name} opens inside another one, or twice", where, line)
            opened = marker
        elif opened is None or opened[2] != name:
            raise _unpaired(f"block {name} ends, but was not open", where, line)
        else:
            inner = text[opened.end() + 1 : marker.start()]
            found[name] = Block(name, inner, text.count("\n", 0, opened.end()) + 2)
            opened = None
    if opened is not None:
        line = text.count("\n", 0, opened.start()) + 1
        raise _unpaired(f"block {opened[2]} is never closed", where, line)
    return found


def outside(text: str, *, keep_prose: bool = True) -> str:
    """The text with generated blocks blanked out line by line, so that line numbers stay true."""
    for block in find_blocks(text).values():
        if not (keep_prose and block.name.startswith(PROSE_PREFIX)):
            whole = f"{begin(block.name)}\n{block.text}"
            text = text.replace(whole, "\n" * whole.count("\n"), 1)
    return _MARKER.sub("", text)


def _unpaired(message: str, where: str, line: int) -> CheckError:
    return CheckError(
        "HT082",
        f"card block markers do not pair up: {message}",
        where=f"{where}:{line}",
        detail=("The card was not written.",),
        next="restore the marker lines (or delete both lines of that block), then render again",
    )
