"""Log files on disk: which ones a pattern names, and their lines, whatever they are packed in.

Compression is told by magic bytes, not by suffix. Memory stays bounded: lines come one by one and a
line without end is cut.
"""

from __future__ import annotations

import glob
import gzip
import os
import shlex
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from hubtools.errors import EnvironmentFailure, UsageError

MAX_LINE = 64 << 20
"""Longest line that is read, in bytes; `open_lines` yields one byte more of a longer one."""

SUFFIXES = tuple(f".{name}{pack}" for name in ("jsonl", "ndjson") for pack in ("", ".gz", ".zst"))
"""Which files count as logs when a directory is named."""

_PIECE = 1 << 20
# One zstd block header of 4 bytes may stand for 128 KiB: small bites keep a bomb small.
_ZSTD_BITE = 2 << 10
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIP = b"\x2a\x4d\x18"  # after 0x50…0x5F: a frame to skip, which parallel packers put first


class DamagedLogError(Exception):
    """Compressed data that ends too early or does not decompress; lines before it are good."""


def expand(patterns: Sequence[str], root: Path) -> list[Path]:
    """The files that `patterns` name, sorted, each once.

    Args:
        patterns: globs (`**` too), files or directories, relative to `root`. A relative pattern
            cannot leave `root`, through `..` or a link; an absolute one goes where it says.
        root: the project's folder.

    Raises:
        UsageError: HT201 a pattern without a file, HT202 a file outside `root`.
    """
    home = root.resolve()
    found: dict[Path, Path] = {}
    for pattern in patterns:
        files = _named(pattern, root)
        if not files:
            raise UsageError(
                "HT201",
                f"no log file matches {pattern!r}; nothing was verified",
                where=str(root),
                next=f"ls {shlex.quote(str(root))}, then correct the pattern",
            )
        for file in files:
            real = file.resolve()
            if not os.path.isabs(pattern) and not real.is_relative_to(home):
                raise UsageError(
                    "HT202",
                    f"the log pattern {pattern!r} leads outside the project; nothing was read",
                    where=str(file),
                    detail=(f"a relative pattern stays below {root}",),
                    next=f"move the logs below {root}, or write the pattern as an absolute path",
                )
            found.setdefault(real, file)
    return sorted(found.values())


def _named(pattern: str, root: Path) -> list[Path]:
    literal = root / pattern
    if os.path.isfile(literal):  # unlike Path.is_file, no error for a name that is too long
        return [literal]
    if os.path.isdir(literal):
        return [
            Path(folder, name)
            for folder, _, names in os.walk(literal)
            for name in names
            if name.endswith(SUFFIXES) and Path(folder, name).is_file()
        ]
    matches = glob.glob(pattern, root_dir=root, recursive=True)
    return [root / match for match in matches if (root / match).is_file()]


def open_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    r"""Numbered lines of a plain, gzip or zstd file, each with its `\n` unless it has none.

    Several gzip members or zstd frames in a row are one text. A line longer than `MAX_LINE` is
    yielded cut to `MAX_LINE + 1` bytes.

    Raises:
        DamagedLogError: after the last good line, when the compressed data is broken.
        EnvironmentFailure: HT203 when the file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
            stream.seek(0)
            if magic.startswith(_GZIP):
                yield from _lines(_gunzipped(stream))
            elif magic == _ZSTD or (magic[1:] == _ZSTD_SKIP and 0x50 <= magic[0] <= 0x5F):
                yield from _lines(_unzstd(stream))
            else:
                yield from _lines(iter(lambda: stream.read(_PIECE), b""))
    except OSError as error:
        raise EnvironmentFailure(
            "HT203",
            f"cannot read the log: {error.strerror or error}; nothing was verified",
            where=str(path),
            next=f"ls -l {shlex.quote(str(path))}, then fix its permissions",
        ) from error


def _lines(pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    number, held, size = 1, list[bytes](), 0
    for piece in pieces:
        for part in _split(piece):
            if size <= MAX_LINE:
                held.append(part[: MAX_LINE + 1 - size])
                size += len(held[-1])
            if part.endswith(b"\n"):
                yield number, b"".join(held)
                number, held, size = number + 1, [], 0
    if held:
        yield number, b"".join(held)


def _split(piece: bytes) -> list[bytes]:
    # Not splitlines, which also breaks at a lone \r.
    *whole, last = piece.split(b"\n")
    return [line + b"\n" for line in whole] + ([last] if last else [])


def _gunzipped(stream: BinaryIO) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=stream) as unpacked:
        while True:
            try:
                piece = unpacked.read1(_PIECE)
            except EOFError as error:
                raise DamagedLogError("the gzip data is cut off") from error
            except (gzip.BadGzipFile, zlib.error) as error:
                raise DamagedLogError(f"the gzip data is damaged: {error}") from error
            if not piece:
                return
            yield piece


def _unzstd(stream: BinaryIO) -> Iterator[bytes]:
    import zstandard

    frame = zstandard.ZstdDecompressor().decompressobj()
    fresh = True
    while bite := stream.read(_ZSTD_BITE):
        while bite:
            if frame.eof:
                frame, fresh = zstandard.ZstdDecompressor().decompressobj(), True
            try:
                yield frame.decompress(bite)
            except zstandard.ZstdError as error:
                raise DamagedLogError(f"the zstd data is damaged: {error}") from error
            fresh = False
            bite = frame.unused_data if frame.eof else b""
    if not frame.eof and not fresh:
        raise DamagedLogError("the zstd data is cut off")
