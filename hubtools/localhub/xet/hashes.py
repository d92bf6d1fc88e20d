"""The names of xet storage: keyed BLAKE3 over chunks, and a Merkle tree over chunk hashes.

Pure. A hash is 32 raw bytes here; its text form (`text_of`) swaps the byte order in each group of
eight, as every URL and JSON field of the protocol does. Source: the hashing page of the xet
specification on the Hub's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from blake3 import blake3

HASH_BYTES = 32
DATA_KEY = bytes.fromhex("6697f5775b9550de3135cbaca597181c9de421109beb2b58b4d0b04b93adf229")
NODE_KEY = bytes.fromhex("017ec5c7a5472996fd946666b48a02e65ddd536f37c76dd2f86352e64a53713f")
RANGE_KEY = bytes.fromhex("7f1857d6ce56ed66127ff913e7a5c3f3a4cd26d5b5db49e64124987f28fb94c3")
FILE_KEY = bytes(HASH_BYTES)
MEAN_BRANCHES = 4
MAX_BRANCHES = 2 * MEAN_BRANCHES + 1

_TEXT = re.compile(r"[0-9a-f]{64}")

Node = tuple[bytes, int]
"""A hash and the number of raw bytes under it."""


def text_of(raw: bytes) -> str:
    """The 64 hex digits by which the protocol's URLs and JSON name a raw hash."""
    return "".join(raw[at : at + 8][::-1].hex() for at in range(0, HASH_BYTES, 8))


def raw_of(text: str) -> bytes:
    """Inverse of `text_of`.

    Raises:
        ValueError: not 64 lower-case hex digits.
    """
    if not _TEXT.fullmatch(text):
        raise ValueError("a xet hash has 64 lower-case hex digits")
    swapped = bytes.fromhex(text)
    return b"".join(swapped[at : at + 8][::-1] for at in range(0, HASH_BYTES, 8))


def chunk_hash(data: bytes) -> bytes:
    """Raw hash of one chunk's uncompressed bytes."""
    return blake3(data, key=DATA_KEY).digest()


def xorb_hash(chunks: Sequence[Node]) -> bytes:
    """Raw hash of a xorb: the root of the tree over its (chunk hash, raw length) pairs.

    Nodes are merged in runs of 3 to 9; a run ends at the first node, from the third on, whose last
    eight bytes (little endian) are divisible by four. No chunks give 32 zero bytes.
    """
    level = list(chunks)
    if not level:
        return bytes(HASH_BYTES)
    while len(level) > 1:
        level = list(_merged(level))
    return level[0][0]


def file_hash(chunks: Sequence[Node]) -> bytes:
    """Raw hash of a file: the tree's root, hashed once more; 32 zero bytes for an empty file."""
    if not chunks:
        return bytes(HASH_BYTES)
    return blake3(xorb_hash(chunks), key=FILE_KEY).digest()


def range_hash(chunks: Iterable[bytes]) -> bytes:
    """Raw hash of a run of chunk hashes: proves that an uploader knows what a term refers to."""
    return blake3(b"".join(chunks), key=RANGE_KEY).digest()


def _merged(level: Sequence[Node]) -> Iterable[Node]:
    start = 0
    while start < len(level):
        end = _run_end(level, start)
        run = level[start:end]
        lines = "".join(f"{text_of(raw)} : {size}\n" for raw, size in run)
        digest = blake3(lines.encode(), key=NODE_KEY).digest()
        yield digest, sum(size for _, size in run)
        start = end


def _run_end(level: Sequence[Node], start: int) -> int:
    last = min(start + MAX_BRANCHES, len(level))
    for at in range(start + 2, last):
        if int.from_bytes(level[at][0][24:], "little") % MEAN_BRANCHES == 0:
            return at + 1
    return last
