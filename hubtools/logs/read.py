"""Log files to records: everything is told by content, damage is counted, nothing crashes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hubtools.errors import HubtoolsError
from hubtools.logs import containers
from hubtools.logs.answers import records
from hubtools.logs.archives import is_tar, is_zip, tar_members, zip_members
from hubtools.logs.containers import DamagedLogError, PieceReader, lines, opened, unpacked
from hubtools.logs.documents import values
from hubtools.logs.exchange import Exchange
from hubtools.logs.jsonline import BadJsonError, parse_line
from hubtools.logs.located import line_of, parse_json, parse_yaml
from hubtools.logs.readers import reader_of
from hubtools.logs.records import BadLine, Record

_HEAD = 64 << 10
_BOM = b"\xef\xbb\xbf"
_YAML = re.compile(rb"(?:#.*\n|---\s*\n)*(?:interactions|version|http_interactions)\s*:")
_EVENTS = (b"data:", b"event:", b"id:", b": ", b":\n", b"retry:")


def label(path: Path, root: Path) -> str:
    """How records and verdicts name a file: relative to `root`, with `/`."""
    return Path(os.path.relpath(path, root)).as_posix()


def read_logs(paths: Iterable[Path], root: Path) -> Iterator[Record | BadLine]:
    """Records and bad lines of all `paths`, in order, holding one line or document at a time.

    Raises:
        EnvironmentFailure: HT203 when a file cannot be read, HT213 a reader that does not load.
    """
    for path in paths:
        yield from read_log(path, label(path, root))


def read_log(path: Path, name: str) -> Iterator[Record | BadLine]:
    """Records and bad lines of one file; `name` is what they call it, with members below it."""
    place = _Place(name)
    try:
        with opened(path) as stream:
            head = stream.read(4)
            stream.seek(0)
            if is_zip(head):
                for member, source in zip_members(path, stream):
                    yield from _read(source, place.at(f"{name}/{member}"))
                return
            source = PieceReader(unpacked(stream))
            if is_tar(source.peek(512)):
                for member, inner in tar_members(path.stat().st_size, source):
                    yield from _read(inner, place.at(f"{name}/{member}"))
            else:
                yield from _read(source, place)
    except DamagedLogError as damage:
        yield BadLine(place.file, place.line + 1, "damaged", str(damage))


def read_line(line: bytes, file: str, number: int) -> Iterator[Record | BadLine]:
    """The records on one line of JSON, raw, with its newline when it has one."""
    try:
        value = parse_line(line)
    except BadJsonError as bad:
        yield BadLine(file, number, bad.kind, bad.detail)
        return
    yield from read_value(value, file, number)


def read_value(value: dict[str, Any], file: str, line: int) -> Iterator[Record | BadLine]:
    """The records in one document, or one line, that begins on `line`."""
    name = "deciding the format"
    try:
        reader = reader_of(value)
        if reader is None:
            alone = "request" in value or "custom_id" in value
            what = "a request alone" if alone else "another format"
            yield BadLine(file, line, "not a response", what)
            return
        name = reader.name
        for call in reader.exchanges(value):
            if not isinstance(call, Exchange):
                raise TypeError(f"{type(call).__name__} is no Exchange")
            yield from records(call, file, line_of(call.at, line))
    except RecursionError:
        yield BadLine(file, line, "too deep")
    except HubtoolsError:
        raise
    except Exception as error:  # another package's reader may fail in any way
        detail = f"{name}: {type(error).__name__}"  # not its text, which may quote the log
        yield BadLine(file, line, "reader failed", detail)


class _Place:
    """How far reading has come, for damage that ends it."""

    def __init__(self, file: str) -> None:
        self.file, self.line = file, 0

    def at(self, file: str) -> _Place:
        self.file, self.line = file, 0
        return self


def _read(source: PieceReader, place: _Place) -> Iterator[Record | BadLine]:
    head = source.peek(_HEAD).removeprefix(_BOM).lstrip()
    if is_zip(head):
        raise DamagedLogError("a zip archive inside another file is not read")
    if head.startswith((b"PAR1", b"ARROW1")):
        yield BadLine(place.file, 1, "not a response", "a columnar file")
    elif head.startswith(_EVENTS):
        yield from _events(source, place)
    elif _YAML.match(head):
        yield from _yaml(source, place)
    elif head.startswith(b"[") or (head.startswith(b"{") and _one_document(head)):
        for place.line, text in values(source.rest()):
            yield from _document(text, place)
    else:
        for place.line, line in lines(source.rest()):
            if line.strip():
                yield from read_line(line, place.file, place.line)


def _one_document(head: bytes) -> bool:
    """Whether an object goes on beyond its first line, or another one follows it there."""
    first, *rest = [line for line in head.split(b"\n") if line.strip()][:2]
    if len(head) > _HEAD // 2 and not rest:
        return False  # a long line, of which only the beginning is seen
    second = rest[0].strip() if rest else b""
    # After a bad line comes a good one; the second line of a document is none by itself.
    return _broken(first) and not (second.startswith(b"{") and not _broken(second))


def _broken(line: bytes) -> bool:
    try:
        parse_line(line + b"\n")
    except BadJsonError as bad:
        return bad.kind == "not JSON"
    return False


def _document(text: bytes, place: _Place) -> Iterator[Record | BadLine]:
    try:
        value = parse_json(text, place.line)
    except BadJsonError as bad:
        yield BadLine(place.file, place.line, bad.kind, bad.detail)
        return
    yield from read_value(value, place.file, place.line)


def _events(source: PieceReader, place: _Place) -> Iterator[Record | BadLine]:
    for place.line, line in lines(source.rest()):
        data = line.removeprefix(_BOM).removeprefix(b"data:").strip()
        if line.removeprefix(_BOM).startswith(b"data:") and data != b"[DONE]":
            ending = b"\n" if line.endswith(b"\n") else b""
            yield from read_line(data + ending, place.file, place.line)


def _yaml(source: PieceReader, place: _Place) -> Iterator[Record | BadLine]:
    parts, size = [], 0
    for piece in source.rest():
        size += len(piece)
        if size > containers.MAX_LINE:
            detail = f"more than {containers.MAX_LINE >> 20} MiB"
            yield BadLine(place.file, 1, "too long", detail)
            return
        parts.append(piece)
    try:
        value = parse_yaml(b"".join(parts))
    except BadJsonError as bad:
        yield BadLine(place.file, 1, bad.kind, bad.detail)
        return
    yield from read_value(value, place.file, 1)
