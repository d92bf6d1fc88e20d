"""JSON values in a text that is not one object a line: pretty-printed, concatenated, one big array.

The text comes in pieces and one value is held at a time, however large the array is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hubtools.logs import containers

_OUTSIDE = re.compile(rb'["{}\[\]\n]')
_STRING = re.compile(rb'(?:[^"\\\n]++|\\[^\n])*+')
_BETWEEN = b" \t\r\n,\xef\xbb\xbf"


def values(pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    r"""The line and the text of each value; the elements of an outermost array count as values.

    A complete value ends with `\n`; one that the end of the text cuts off does not. One longer than
    `MAX_LINE` is cut to `MAX_LINE + 1` bytes.
    """
    scanner = _Scanner()
    for piece in pieces:
        yield from scanner.feed(piece)
    yield from scanner.end()


class _Scanner:
    def __init__(self) -> None:
        self.line = self.start = 1
        self.depth = 0
        self.base = 0  # 1 inside an outermost array
        self.quoted = self.escaped = False
        self.held: list[bytes] = []
        self.size = 0

    def feed(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        at = kept = 0
        if self.escaped and piece:
            at, self.escaped = int(piece[0] != 0x0A), False
        while (place := self._next(piece, at)) < len(piece):
            byte, at = piece[place], place + 1
            if byte == 0x0A:
                self.line += 1
            elif byte == 0x22:
                self.quoted = not self.quoted
            elif byte == 0x5C:
                self.escaped = at == len(piece)
            elif byte in b"[{":
                if self.depth == self.base:  # whatever stands between values is no value
                    self._keep(piece[kept:place])
                    yield from self._flush(b"\n")
                    kept = place
                    if byte == 0x5B and self.depth == 0:
                        self.base, kept = 1, at
                    self.start = self.line
                self.depth += 1
            elif self.depth == 0:
                continue  # a stray bracket is no value: it is told with what stands around it
            elif self.depth == self.base:  # the end of the outermost array
                self._keep(piece[kept:place])
                yield from self._flush(b"\n")
                kept, self.start = at, self.line
                self.depth = self.base = 0
            else:
                self.depth -= 1
                if self.depth == self.base:
                    self._keep(piece[kept:at])
                    yield from self._flush(b"\n")
                    kept, self.start = at, self.line
        self._keep(piece[kept:])

    def _next(self, piece: bytes, at: int) -> int:
        """The place of the next byte that matters."""
        if self.quoted:
            found = _STRING.match(piece, at)
            return found.end() if found else len(piece)
        found = _OUTSIDE.search(piece, at)
        return found.start() if found else len(piece)

    def end(self) -> Iterator[tuple[int, bytes]]:
        if self.base and self.depth == self.base and not b"".join(self.held).strip(_BETWEEN):
            self._keep(b"[")  # the array itself is cut off
        yield from self._flush(b"" if self.depth or self.quoted else b"\n")

    def _keep(self, part: bytes) -> None:
        room = containers.MAX_LINE + 1 - self.size
        if part and room > 0:
            self.held.append(part[:room])
            self.size += len(self.held[-1])

    def _flush(self, ending: bytes) -> Iterator[tuple[int, bytes]]:
        text = b"".join(self.held).strip(_BETWEEN)
        self.held, self.size = [], 0
        if text:
            yield self.start, text + ending
