"""Log files on disk: which ones a pattern names, and their lines, whatever they are packed in.

Compression is told by magic bytes, not by suffix. Memory stays bounded: lines come one by one and a
line without end is cut.
"""

from __future__ import annotations

import bz2
import glob
import gzip
import lzma
import os
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from hubtools.errors import EnvironmentFailure, UsageError

MAX_LINE = 64 << 20
"""Longest line that is read, in bytes; `open_lines` yields one byte more of a longer one."""

SUFFIXES = (
    *(
        f".{name}{pack}"
        for name in ("jsonl", "ndjson", "json", "yaml", "yml", "har", "traj", "sse")
        for pack in ("", ".gz", ".zst", ".xz", ".bz2")
    ),
    *(".eval", ".zip", ".tar", ".tgz", ".tar.gz", ".tar.zst", ".tar.xz", ".tar.bz2"),
)
"""Which files count as logs when a directory is named; what they hold is told by their content."""

_PIECE = 1 << 20
# One zstd block header of 4 bytes may stand for 128 KiB: small bites keep a bomb small.
_ZSTD_BITE = 2 << 10
_MAX_LAYERS = 3
_MAX_READ = 64 << 20
_XZ_MEMORY = 256 << 20
_GZIP = b"\x1f\x8b"
_XZ = b"\xfd7zXZ\x00"
_BZ2 = b"BZh"
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
    r"""Numbered lines of a plain or packed file, each with its `\n` unless it has none.

    Packings are gzip, zstd, xz and bzip2, also of several members, and one in another. A line
    longer than `MAX_LINE` is yielded cut to `MAX_LINE + 1` bytes.

    Raises:
        DamagedLogError: after the last good line, when the compressed data is broken.
        EnvironmentFailure: HT203 when the file cannot be read.
    """
    with opened(path) as stream:
        yield from lines(unpacked(stream))


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file, open for reading.

    Raises:
        EnvironmentFailure: HT203 when it, or what is read of it, cannot be read.
    """
    try:
        with path.open("rb") as stream:
            yield stream
    except OSError as error:
        raise EnvironmentFailure(
            "HT203",
            f"cannot read the log: {error.strerror or error}; nothing was verified",
            where=str(path),
            next=f"ls -l {shlex.quote(str(path))}, then fix its permissions",
        ) from error


class Source(Protocol):
    """Bytes that are read once, from front to back."""

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes; nothing at the end."""
        ...


class PieceReader:
    """A file of pieces, of which any number of first bytes may be looked at."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._held, self._at = b"", 0
        self._damage: DamagedLogError | None = None

    def peek(self, size: int) -> bytes:
        """The next `size` bytes (fewer at the end), which stay to be read."""
        if len(self._held) - self._at < size:
            parts = [self._held[self._at :]]
            total = len(parts[0])
            while total < size and (piece := self._next()):
                parts.append(piece)
                total += len(piece)
            self._held, self._at = b"".join(parts), 0
        return self._held[self._at : self._at + size]

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes, exactly as many unless the end is near.

        Raises:
            DamagedLogError: more than anything sound asks for at once.
        """
        if not 0 <= size <= _MAX_READ:
            raise DamagedLogError("the archive has an impossible header")
        found = self.peek(size)
        self._at += len(found)
        if size and not found and self._damage is not None:
            raise self._damage
        return found

    def rest(self) -> Iterator[bytes]:
        """All that is left, in pieces."""
        held, self._held, self._at = self._held[self._at :], b"", 0
        if held:
            yield held
        yield from self._pieces
        if self._damage is not None:
            raise self._damage

    def _next(self) -> bytes:
        """The next piece that is not empty; damage is told after what came before it."""
        try:
            return next(filter(None, self._pieces), b"")
        except DamagedLogError as damage:
            self._damage = damage
            return b""


def unpacked(stream: Source) -> Iterator[bytes]:
    """The pieces of a stream without its packings.

    Raises:
        DamagedLogError: after the last good piece, when packed data is broken or packed too often.
    """
    source = PieceReader(iter(lambda: stream.read(_PIECE), b""))
    for _ in range(_MAX_LAYERS):
        layer = _layer(source.peek(8))
        if layer is None:
            break
        source = PieceReader(layer(source))
    else:
        if _layer(source.peek(8)) is not None:
            raise DamagedLogError(f"packed more than {_MAX_LAYERS} times")
    yield from source.rest()


def _layer(magic: bytes) -> Callable[[Source], Iterator[bytes]] | None:
    if magic.startswith(_GZIP):
        return _gunzipped
    if magic.startswith(_XZ):
        return _unxz
    if magic.startswith(_BZ2) and magic[4:8] == b"1AY&":
        return _unbz2
    if magic[:4] == _ZSTD or (magic[1:4] == _ZSTD_SKIP and 0x50 <= magic[0] <= 0x5F):
        return unzstd
    return None


def lines(pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Numbered lines of pieces of text, as `open_lines` gives them."""
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


def _gunzipped(stream: Source) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=stream, mode="rb") as inner:  # type: ignore[call-overload]
        while True:
            try:
                piece = inner.read1(_PIECE)
            except EOFError as error:
                raise DamagedLogError("the gzip data is cut off") from error
            except (gzip.BadGzipFile, zlib.error) as error:
                raise DamagedLogError(f"the gzip data is damaged: {error}") from error
            if not piece:
                return
            yield piece


def unzstd(stream: Source) -> Iterator[bytes]:
    """The pieces of zstd frames."""
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


def _unxz(stream: Source) -> Iterator[bytes]:
    return _streams(
        stream,
        lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY),
        "xz",
        padding=b"\0",
    )


def _unbz2(stream: Source) -> Iterator[bytes]:
    return _streams(stream, bz2.BZ2Decompressor, "bzip2")


def _streams(
    source: Source,
    make: Callable[[], lzma.LZMADecompressor | bz2.BZ2Decompressor],
    packing: str,
    padding: bytes = b"",
) -> Iterator[bytes]:
    engine, fresh = make(), True
    while bite := source.read(_PIECE):
        while bite or not (engine.eof or engine.needs_input):
            if engine.eof:
                bite = bite.lstrip(padding) if padding else bite
                engine, fresh = make(), True
                continue
            try:
                yield engine.decompress(bite, _PIECE)
            except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
                raise DamagedLogError(f"the {packing} data is damaged: {error}") from error
            fresh = False
            bite = engine.unused_data if engine.eof else b""
    if not engine.eof and not fresh:
        raise DamagedLogError(f"the {packing} data is cut off")
