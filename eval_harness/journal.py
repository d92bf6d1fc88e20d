"""`responses.jsonl.zst`: what models answered, one zstd frame for each finished sample.

The only file that grows while a run is asking. A kill in the middle of a write leaves a frame
without an end, which is cut off when the run goes on. Damage in the middle stays where it is and is
passed over: the answers after it count. Where a sample was asked again, its last frame counts.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import zstandard

NAME = "responses.jsonl.zst"
LEVEL = 3
MAGIC = zstandard.FRAME_HEADER
LIMIT = 1 << 30
"""Bytes of one decompressed frame; a header that promises more is damage."""

Entry = Mapping[str, Any]


class Codec:
    """Entries to frames and back; one for each thread, as its contexts are used again."""

    def __init__(self) -> None:
        self._pack = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress
        self._unpack = zstandard.ZstdDecompressor().decompress
        # ASCII: a server may send half a surrogate pair
        self._json = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode

    def encode(self, entry: Entry) -> bytes:
        """One JSON line as a frame of its own, with a checksum.

        Numbers that JSON does not have, as in a server's `"logprob": -Infinity`, become text.
        """
        try:
            line = self._json(entry)
        except ValueError:
            line = self._json(json.loads(json.dumps(entry), parse_constant=str))
        return self._pack(line.encode() + b"\n")

    def decode(self, frame: bytes) -> dict[str, Any]:
        """Inverse of `encode`.

        Raises:
            ValueError: damaged.
        """
        try:
            entry = json.loads(self._unpack(frame, max_output_size=LIMIT))
        except (zstandard.ZstdError, RecursionError) as error:
            raise ValueError(str(error)) from error
        if not isinstance(entry, dict):
            raise ValueError("not a JSON object")
        return entry


def whole_entries(
    data: bytes | mmap.mmap, codec: Codec | None = None
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Begin, end and entry of every frame that can be read, whatever lies between them."""
    codec, begin = codec or Codec(), 0
    while 0 <= begin < len(data):
        end = _end(data, begin)
        if end is not None:
            try:
                entry = codec.decode(data[begin:end])
            except ValueError:
                end = None
            else:
                yield begin, end, entry
        begin = data.find(MAGIC, begin + 1) if end is None else end


def frame_ends(data: bytes | mmap.mmap) -> Iterator[int]:
    """Where each whole frame ends; stops before one that is cut off or is none."""
    place = 0
    while (end := _end(data, place)) is not None:
        yield end
        place = end


def _end(data: bytes | mmap.mmap, place: int) -> int | None:
    """End of the frame at `place`, from its block headers (RFC 8878, 3.1.1)."""
    head = data[place : place + 18]
    try:
        told = zstandard.get_frame_parameters(head)
        place += zstandard.frame_header_size(head)
    except zstandard.ZstdError:
        return None
    last = 0
    while not last:
        header = int.from_bytes(data[place : place + 3], "little")
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        place += 3 + (1 if kind == 1 else size)  # 1: one byte, repeated
        if place > len(data) or kind == 3:
            return None
    place += 4 if told.has_checksum else 0
    return place if place <= len(data) else None


class Journal:
    """The answers of one run on disk, and where each of them stands.

    Args:
        path: the file; made when it is not there.
        items: ids in the suite's order; the samples of item i stand at places i * trials onward.
        trials: samples of each item.

    `damaged` counts the places in the file where `recover` passed something over.
    """

    def __init__(self, path: Path, items: Sequence[str], trials: int) -> None:
        self._path, self._trials, self._codec = path, trials, Codec()
        self._of = {item: place * trials for place, item in enumerate(items)}
        self._begins = array("q", [-1]) * (len(items) * trials)
        self._sizes = array("q", [0]) * (len(items) * trials)
        self._stream = path.open("ab+")
        self._end = 0
        self.damaged = 0

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.close()

    def recover(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Place and entry of what an earlier process left, in the order of writing.

        The file is cut back to the last entry of this run. Must be read to its end before `write`.
        """
        if os.fstat(self._stream.fileno()).st_size:
            with mmap.mmap(self._stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                for begin, end, entry in whole_entries(data, self._codec):
                    try:
                        place = self._place(entry)
                    except (ValueError, KeyError, TypeError, AttributeError):
                        continue
                    self.damaged += begin > self._end
                    self._end = begin
                    self._keep(place, end - begin)
                    yield place, entry
        self._stream.truncate(self._end)
        self._stream.seek(self._end)

    def write(self, entries: Sequence[tuple[int, Entry]]) -> None:
        """Append the entries of these places."""
        frames = [(place, self._codec.encode(entry)) for place, entry in entries]
        self._stream.write(b"".join(frame for _, frame in frames))
        self._stream.flush()
        for place, frame in frames:
            self._keep(place, len(frame))

    def forget(self, place: int) -> None:
        """Ask this sample again; its old frame stays in the file."""
        self._begins[place] = -1

    def __contains__(self, place: int) -> bool:
        return self._begins[place] >= 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The entries in the suite's order; all must be there."""
        with self._path.open("rb") as stream:
            for begin, size in zip(self._begins, self._sizes, strict=True):
                stream.seek(begin)
                yield self._codec.decode(stream.read(size))

    def sync(self) -> str:
        """Make what was written durable; the file's sha256."""
        os.fsync(self._stream.fileno())
        with self._path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def _place(self, entry: Entry) -> int:
        trial, outcome = entry["trial"], entry["outcome"]
        said = [message[key] for message in outcome["transcript"] for key in ("role", "content")]
        told = [outcome[key] for key in ("failure", "failure_kind", "finish")]
        if not all(isinstance(text, str) for text in (*said, *told)):
            raise ValueError("an outcome without its texts")
        if not all(isinstance(outcome.get(key) or {}, dict) for key in ("served", "tokens")):
            raise ValueError("an outcome whose server or tokens are no objects")
        if not 0 <= trial < self._trials:
            raise ValueError(f"trial {trial}")
        return self._of[entry["item"]] + int(trial)

    def _keep(self, place: int, size: int) -> None:
        self._begins[place], self._sizes[place] = self._end, size
        self._end += size
