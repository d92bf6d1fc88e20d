"""The xorb format: a sequence of compressed chunks, each behind a header of eight bytes.

Pure. Header: version (0), stored length (3 bytes), scheme (1 byte), raw length (3 bytes), little
endian. A footer may follow the last chunk; its contents are redundant and are not trusted. Source:
the xorb page of the xet specification on the Hub's documentation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import lz4.frame

from hubtools.localhub.xet.hashes import HASH_BYTES, chunk_hash
from hubtools.localhub.xet.refusal import (
    MAX_CHUNK,
    MAX_OVERHEAD,
    MAX_XORB,
    malformed_xorb,
    too_large,
)

HEADER_BYTES = 8
STORED, LZ4, GROUPED_LZ4 = 0, 1, 2
FOOTER_MARK = b"XETBLOB"

_RECORD = struct.Struct(f"<{HASH_BYTES}sII")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Where one chunk of a xorb lies.

    Args:
        hash: raw hash of its uncompressed bytes.
        start, end: byte range of header and stored data in the serialised xorb, end exclusive.
        raw: number of uncompressed bytes.
    """

    hash: bytes
    start: int
    end: int
    raw: int


def read_chunks(body: bytes | memoryview) -> Iterator[Chunk]:
    """Walk a serialised xorb, unpacking and hashing every chunk.

    Args:
        body: the whole xorb, with or without footer.

    Raises:
        Refused: HT650 on any byte that does not fit the format; HT655 when it is too long.
    """
    view = memoryview(body)
    if len(view) > MAX_XORB + MAX_OVERHEAD:
        raise too_large("a xorb", MAX_XORB + MAX_OVERHEAD)
    at = 0
    raw = 0
    while at < len(view) and view[at : at + len(FOOTER_MARK)] != FOOTER_MARK:
        data, end = unpack_chunk(view, at)
        raw += len(data)
        if raw > MAX_XORB:
            raise too_large("the chunks of a xorb", MAX_XORB)
        yield Chunk(chunk_hash(data), at, end, len(data))
        at = end
    if at == 0:
        raise malformed_xorb("it has no chunks", 0)
    _check_footer(view[at:], at)


def unpack_chunk(view: memoryview, at: int) -> tuple[bytes, int]:
    """Uncompressed bytes of the chunk whose header is at `at`, and the offset after it.

    Raises:
        Refused: HT650 when header or data do not fit the format.
    """
    header = bytes(view[at : at + HEADER_BYTES])
    if len(header) < HEADER_BYTES:
        raise malformed_xorb("the last chunk's header is cut short", at)
    stored = int.from_bytes(header[1:4], "little")
    raw = int.from_bytes(header[5:8], "little")
    if header[0] != 0:
        raise malformed_xorb(f"chunk version {header[0]}, not 0", at)
    if not 0 < raw <= MAX_CHUNK:
        raise malformed_xorb(f"a chunk of {raw} bytes; 1 to {MAX_CHUNK} are allowed", at)
    end = at + HEADER_BYTES + stored
    if end > len(view):
        raise malformed_xorb("the last chunk is cut short", at)
    data = _unpacked(view[at + HEADER_BYTES : end], header[4], raw, at)
    if len(data) != raw:
        raise malformed_xorb(f"a chunk of {len(data)} bytes; its header says {raw}", at)
    return data, end


def _unpacked(packed: memoryview, scheme: int, raw: int, at: int) -> bytes:
    if scheme == STORED:
        return bytes(packed)
    if scheme not in (LZ4, GROUPED_LZ4):
        raise malformed_xorb(f"unknown compression scheme {scheme}", at)
    frame = lz4.frame.LZ4FrameDecompressor()
    try:
        # One byte more than promised is enough to see that a frame is too long.
        data: bytes = frame.decompress(bytes(packed), max_length=raw + 1)
    except RuntimeError as error:
        raise malformed_xorb("a chunk is no LZ4 frame", at) from error
    if not frame.eof or frame.unused_data:
        raise malformed_xorb("a chunk's LZ4 frame does not end with the chunk", at)
    return ungrouped(data) if scheme == GROUPED_LZ4 else data


def ungrouped(data: bytes) -> bytes:
    """Undo byte grouping: `data` holds all first bytes of four, then all second bytes, and so on.

    Returns:
        as many bytes, in their original order; a last incomplete group of four is allowed.
    """
    result = bytearray(len(data))
    at = 0
    for place in range(4):
        count = (len(data) - place + 3) // 4
        result[place::4] = data[at : at + count]
        at += count
    return bytes(result)


def _check_footer(footer: memoryview, at: int) -> None:
    if not footer:
        return
    length = int.from_bytes(footer[-4:], "little")
    if length != len(footer) - 4:
        raise malformed_xorb(f"its footer has {len(footer) - 4} bytes and says {length}", at)


def pack_index(chunks: list[Chunk]) -> bytes:
    """Serialise a xorb's chunk list: what the storage keeps beside the xorb."""
    return b"".join(_RECORD.pack(chunk.hash, chunk.end, chunk.raw) for chunk in chunks)


def unpack_index(data: bytes) -> list[Chunk]:
    """Inverse of `pack_index`.

    Raises:
        struct.error: not a whole number of records.
    """
    chunks: list[Chunk] = []
    start = 0
    for name, end, raw in _RECORD.iter_unpack(data):
        chunks.append(Chunk(name, start, end, raw))
        start = end
    return chunks
