"""The client's half of the xet formats, small, for tests alone."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from hashlib import sha256

import lz4.frame

from hubtools.localhub.xet.hashes import chunk_hash, file_hash, range_hash, raw_of, xorb_hash

TAG = bytes.fromhex("48465265706f4d6574614461746100556967456a7b815783a5bdd95ccdd14aa9")


def grouped(data: bytes) -> bytes:
    return b"".join(data[place::4] for place in range(4))


def encode_chunk(data: bytes, scheme: int) -> bytes:
    packed = data
    if scheme:
        packed = lz4.frame.compress(grouped(data) if scheme == 2 else data)
    header = b"\0" + len(packed).to_bytes(3, "little")
    return header + bytes([scheme]) + len(data).to_bytes(3, "little") + packed


def encode_footer(size: int = 40) -> bytes:
    info = b"XETBLOB" + bytes(size)
    return info + struct.pack("<I", len(info))


@dataclass
class Xorb:
    """Chunks as raw bytes with their schemes."""

    chunks: list[bytes]
    schemes: list[int] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        schemes = self.schemes or [1] * len(self.chunks)
        return b"".join(map(encode_chunk, self.chunks, schemes))

    @property
    def nodes(self) -> list[tuple[bytes, int]]:
        return [(chunk_hash(chunk), len(chunk)) for chunk in self.chunks]

    @property
    def name(self) -> bytes:
        return xorb_hash(self.nodes)


@dataclass
class File:
    """A file as runs of chunks; every field a shard states can be made false."""

    runs: list[tuple[Xorb, int, int]]
    sha256: str | None = ""
    hash: bytes = b""
    length_error: int = 0
    proof: bytes | None = None

    @property
    def content(self) -> bytes:
        return b"".join(b"".join(x.chunks[a:b]) for x, a, b in self.runs)

    @property
    def name(self) -> bytes:
        return self.hash or file_hash([node for x, a, b in self.runs for node in x.nodes[a:b]])

    def encode(self) -> bytes:
        digest = self.sha256 if self.sha256 != "" else sha256(self.content).hexdigest()
        flags = (1 << 31) | (0 if digest is None else 1 << 30)
        out = struct.pack("<32sIIQ", self.name, flags, len(self.runs), 0)
        for xorb, start, end in self.runs:
            length = sum(map(len, xorb.chunks[start:end])) + self.length_error
            out += struct.pack("<32sIIII", xorb.name, 0, length, start, end)
        for xorb, start, end in self.runs:
            proof = self.proof or range_hash(name for name, _ in xorb.nodes[start:end])
            out += proof + bytes(16)
        return out if digest is None else out + raw_of(digest) + bytes(16)


BOOKEND = b"\xff" * 32 + bytes(16)


def encode_shard(files: list[File], xorbs: list[Xorb], footer: bytes = b"") -> bytes:
    out = TAG + struct.pack("<QQ", 2, len(footer))
    out += b"".join(file.encode() for file in files) + BOOKEND
    for xorb in xorbs:
        sizes = [size for _, size in xorb.nodes]
        out += struct.pack("<32sIIII", xorb.name, 0, len(sizes), sum(sizes), len(xorb.body))
        at = 0
        for name, size in xorb.nodes:
            out += struct.pack("<32sIIQ", name, at, size, 0)
            at += size
    return out + BOOKEND + footer
