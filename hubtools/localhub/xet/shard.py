"""The shard format: which files an upload holds, as runs of chunks in xorbs.

Pure. A header of 48 bytes, the file section and the xorb section (both in entries of 48 bytes,
each closed by a bookend whose hash is all ones), and an optional footer, which adds nothing.
Source: the shard page of the xet specification on the Hub's documentation.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hubtools.localhub.xet.hashes import HASH_BYTES, text_of
from hubtools.localhub.xet.refusal import MAX_SHARD, malformed_shard, too_large

TAG = b"HFRepoMetaData\0" + bytes.fromhex("556967456a7b815783a5bdd95ccdd14aa9")
VERSION = 2
ENTRY_BYTES = 48
BOOKEND = b"\xff" * HASH_BYTES
WITH_VERIFICATION = 1 << 31
WITH_METADATA = 1 << 30

_HEADER = struct.Struct("<32sQQ")
_ENTRY = struct.Struct("<32sIIII")


@dataclass(frozen=True, slots=True)
class Term:
    """A run of chunks in a xorb.

    Args:
        xorb: raw hash of the xorb.
        start, end: chunk indices, end exclusive.
        length: number of uncompressed bytes in the run.
        proof: raw range hash over the run's chunk hashes; None when the shard has none.
    """

    xorb: bytes
    start: int
    end: int
    length: int
    proof: bytes | None = None


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as the shard describes it: its raw xet hash, its sha256 (hex) and its terms."""

    hash: bytes
    sha256: str | None
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Shard:
    """A parsed shard: its files, and the raw hashes of the xorbs its xorb section describes."""

    files: tuple[FileEntry, ...]
    xorbs: tuple[bytes, ...]


def read_shard(body: bytes) -> Shard:
    """Parse a shard as a client uploads it.

    Raises:
        Refused: HT652 on anything that does not fit the format; HT655 when it is too long.
    """
    if len(body) > MAX_SHARD:
        raise too_large("a shard", MAX_SHARD)
    if len(body) < _HEADER.size:
        raise malformed_shard("the header is cut short", 0)
    tag, version, _ = _HEADER.unpack_from(body)
    if tag != TAG or version != VERSION:
        raise malformed_shard("it does not begin with the tag of version 2", 0)
    reader = _Entries(body)
    files = []
    while (entry := reader.next_header()) is not None:
        files.append(_read_file(reader, entry))
    xorbs = []
    while (entry := reader.next_header()) is not None:
        name, _, count, _, _ = entry
        reader.skip(count)
        xorbs.append(name)
    return Shard(tuple(files), tuple(xorbs))


_Fields = tuple[bytes, int, int, int, int]


def _read_file(reader: _Entries, header: _Fields) -> FileEntry:
    name, flags, count, _, _ = header
    reader.expect(count)
    segments = [reader.next() for _ in range(count)]
    proofs: list[bytes | None] = [None] * count
    if flags & WITH_VERIFICATION:
        proofs = [reader.next()[0] for _ in range(count)]
    # Clients write the sha256, too, in the byte order of xet hashes.
    sha256 = text_of(reader.next()[0]) if flags & WITH_METADATA else None
    terms = tuple(
        Term(xorb, start, end, length, proof)
        for (xorb, _, length, start, end), proof in zip(segments, proofs, strict=True)
    )
    return FileEntry(name, sha256, terms)


class _Entries:
    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = _HEADER.size

    def next(self) -> _Fields:
        self.expect(1)
        fields: _Fields = _ENTRY.unpack_from(self._body, self._at)
        self._at += ENTRY_BYTES
        return fields

    def next_header(self) -> _Fields | None:
        fields = self.next()
        return None if fields[0] == BOOKEND else fields

    def expect(self, count: int) -> None:
        if self._at + count * ENTRY_BYTES > len(self._body):
            raise malformed_shard(f"{count} entries do not fit", self._at)

    def skip(self, count: int) -> None:
        self.expect(count)
        self._at += count * ENTRY_BYTES
