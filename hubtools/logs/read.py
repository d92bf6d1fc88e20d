"""Log files to records: the reader is picked by content, damage is counted, nothing crashes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from hubtools.logs.containers import DamagedLogError, open_lines
from hubtools.logs.openai_chat import read_line
from hubtools.logs.records import BadLine, Record


def label(path: Path, root: Path) -> str:
    """How records and verdicts name a file: relative to `root`, with `/`."""
    return Path(os.path.relpath(path, root)).as_posix()


def read_logs(paths: Iterable[Path], root: Path) -> Iterator[Record | BadLine]:
    """Records and bad lines of all `paths`, in order, holding one line at a time.

    Raises:
        EnvironmentFailure: HT203 when a file cannot be read.
    """
    for path in paths:
        yield from read_log(path, label(path, root))


def read_log(path: Path, name: str) -> Iterator[Record | BadLine]:
    """Records and bad lines of one file; `name` is what they call it."""
    number, first = 0, True
    try:
        for number, line in open_lines(path):
            if not line.strip():
                continue
            found = list(read_line(line, name, number))
            if first and _is_document(line, found):
                yield BadLine(name, number, "whole document", "one JSON document, not JSON lines")
                return
            first = False
            yield from found
    except DamagedLogError as damage:
        yield BadLine(name, number + 1, "damaged", str(damage))


def _is_document(line: bytes, found: list[Record | BadLine]) -> bool:
    bad = found and isinstance(found[0], BadLine) and found[0]
    if not bad:
        return False
    return bad.kind == "not an object" or (
        bad.kind in ("not JSON", "cut off") and line.strip() in (b"{", b"[", b"[{")
    )
