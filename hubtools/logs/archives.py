"""Archives walked without extracting them: zip (also `.eval`) and tar, their files in turn.

A member is read as a stream and never written; the sum of what is unpacked is bounded.
"""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from hubtools.logs.containers import DamagedLogError, PieceReader, unpacked, unzstd

MAX_MEMBERS = 100_000
"""How many files of one archive are read."""

MAX_RATIO = 1000
"""How many times its size an archive may unpack to, beyond the first GiB."""

_ZSTD = 93  # zipfile of Python 3.11 does not know it
_FREE = 1 << 30
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    lzma.LZMAError,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    ValueError,
)
"""What the standard library raises on damaged archives."""


def is_zip(head: bytes) -> bool:
    """Whether a file begins as a zip archive does."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def is_tar(head: bytes) -> bool:
    """Whether a file's first 512 bytes are the header of a tar archive."""
    return head[257:262] == b"ustar"


def zip_members(path: Path, stream: BinaryIO) -> Iterator[tuple[str, PieceReader]]:
    """Name and content of each file in a zip archive, by name; of Inspect's only the samples.

    Raises:
        DamagedLogError: a broken archive, an odd name, too much content.
    """
    budget = _Budget(path.stat().st_size)
    try:
        with zipfile.ZipFile(stream) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
            names = {info.filename for info in infos}
            if names & {"header.json", "_journal/start.json"}:
                infos = [info for info in infos if info.filename.startswith("samples/")]
            budget.members(len(infos))
            for info in sorted(infos, key=lambda info: info.filename):
                yield _safe(info.filename), PieceReader(budget.counted(_zipped(archive, info)))
    except _DAMAGE as error:
        raise DamagedLogError("the zip archive is damaged") from error


def _zipped(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    if info.compress_type != _ZSTD:
        with archive.open(info) as member:
            yield from unpacked(member)
        return
    if archive.fp is None or info.flag_bits & 1:
        raise DamagedLogError("a member of the zip archive is encrypted")
    archive.fp.seek(info.header_offset)
    header = archive.fp.read(30)
    if len(header) < 30 or not header.startswith(b"PK\x03\x04"):
        raise DamagedLogError("the zip archive is damaged: a member is not where it should be")
    skip = sum(struct.unpack("<HH", header[26:30]))
    start = info.header_offset + 30 + skip
    yield from unzstd(_Window(archive.fp, start, info.compress_size))


class _Window:
    """A range of a file that others read, too."""

    def __init__(self, stream: IO[bytes], start: int, size: int) -> None:
        self._stream, self._at, self._end = stream, start, start + size

    def read(self, size: int = -1, /) -> bytes:
        self._stream.seek(self._at)
        found = self._stream.read(min(size, self._end - self._at))
        self._at += len(found)
        return found


def tar_members(packed: int, source: PieceReader) -> Iterator[tuple[str, PieceReader]]:
    """Name and content of each file in a tar archive, in its order.

    `packed` is the size of the file that `source` comes from, in bytes.

    Raises:
        DamagedLogError: a broken archive, an odd name, too much content.
    """
    budget = _Budget(packed)
    try:
        # Streamed: only what was read can be gone back to, so members come in turn.
        with tarfile.open(fileobj=source, mode="r|") as archive:  # type: ignore[call-overload]
            for count, member in enumerate(archive, 1):
                budget.members(count)
                content = archive.extractfile(member) if member.isfile() else None
                if content is not None:
                    with content:
                        pieces = budget.counted(unpacked(content))
                        yield _safe(member.name), PieceReader(pieces)
    except _DAMAGE as error:
        raise DamagedLogError("the tar archive is damaged") from error


class _Budget:
    def __init__(self, packed: int) -> None:
        self._left = _FREE + packed * MAX_RATIO

    def members(self, count: int) -> None:
        if count > MAX_MEMBERS:
            raise DamagedLogError(f"the archive has more than {MAX_MEMBERS:,} files")

    def counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        try:
            for piece in pieces:
                self._left -= len(piece)
                if self._left < 0:
                    what = f"the archive unpacks to over {MAX_RATIO:,} times its size"
                    raise DamagedLogError(what)
                yield piece
        except _DAMAGE as error:
            raise DamagedLogError("a member of the archive is damaged or encrypted") from error


def _safe(member: str) -> str:
    """A member's name as records show it; nothing is ever written to it."""
    parts = [part for part in PurePosixPath(member.replace("\\", "/")).parts if part not in "/.."]
    name = "/".join(parts)[:300]
    return "".join(char if char.isprintable() else "?" for char in name) or "unnamed"
