"""The header of a GGUF file: what model, in which quantisation, how many parameters.

Source: the GGUF specification of ggml (versions 2 and 3, little-endian): magic, counts, key-value
pairs, tensor descriptions, then aligned data. Only the header is read, and believed after checking.
"""

from __future__ import annotations

import io
import math
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hubtools.errors import CheckError

HEADER_LIMIT = 256 << 20
_COUNT_LIMIT = 100_000
_STRING_LIMIT = 2_000_000  # in all arrays; the largest vocabularies have 800 000 with their merges
_ALIGNMENT = 32
_NUMBERS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
# Tensor type → name, elements in a block, bytes of a block.
_TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4),
    27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}  # fmt: skip
_FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K",
    11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S",
    17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS",
    23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M",
    30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE", 39: "NVFP4",
    40: "Q1_0",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GgufInfo:
    """What a GGUF file says of itself.

    Args:
        size: of the whole file, in bytes.
        architecture, name: as the file states them; empty when it does not.
        quantisation: name of the file type, for example `Q4_K_M`; empty when not stated.
        tensors: how many.
        parameters: elements in all tensors.
        dtypes: tensor type → (tensors, elements).
        texts: short string values by key, for what they may give away.
    """

    path: Path
    size: int
    architecture: str
    name: str
    quantisation: str
    tensors: int
    parameters: int
    dtypes: Mapping[str, tuple[int, int]]
    texts: Mapping[str, str]


class ShortHeader(ValueError):
    """The bytes end inside the header."""


def read_gguf(path: Path) -> GgufInfo:
    """Read and check the header of one GGUF file.

    Raises:
        CheckError: HT179 when it is no GGUF file, is truncated, or its header is not true.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        try:
            return parse_gguf(path, stream, size)
        except (ValueError, struct.error) as error:
            raise CheckError(
                "HT179",
                "not a whole GGUF file",
                where=str(path),
                detail=(str(error), "The file was not used; nothing was written."),
                next="copy or download the file again, then run the same command",
            ) from error


def parse_gguf(path: Path, stream: IO[bytes], size: int) -> GgufInfo:
    """The header at the start of `stream`, of a file of `size` bytes.

    Raises:
        ShortHeader: the stream ends inside the header.
        ValueError: the header is not true.
    """
    reader = _Reader(stream)
    if reader.take(4) != b"GGUF":
        raise ValueError("it does not begin with GGUF")
    version = reader.number("I")
    if version not in (2, 3):
        raise ValueError(f"GGUF version {version}; little-endian versions 2 and 3 are read")
    tensors, pairs = reader.number("Q"), reader.number("Q")
    if max(tensors, pairs) > _COUNT_LIMIT:
        raise ValueError(f"{tensors} tensors and {pairs} values")
    fields = {reader.text(): reader.value(reader.number("I")) for _ in range(pairs)}
    dtypes, end = _tensors(reader, tensors)
    alignment = fields.get("general.alignment", _ALIGNMENT)
    if type(alignment) is not int or alignment < 1:
        raise ValueError(f"alignment {alignment!r}")
    start = -(-reader.position // alignment) * alignment
    if tensors and start + end > size:
        raise ValueError(f"tensors end at byte {start + end}, the file at {size}")
    file_type = fields.get("general.file_type")
    return GgufInfo(
        path=path,
        size=size,
        architecture=str(fields.get("general.architecture") or ""),
        name=str(fields.get("general.name") or ""),
        quantisation=_FILE_TYPES.get(file_type, "") if type(file_type) is int else "",
        tensors=tensors,
        parameters=sum(total for _, total in dtypes.values()),
        dtypes=dtypes,
        texts={key: text for key, text in fields.items() if isinstance(text, str)},
    )


def _tensors(reader: _Reader, count: int) -> tuple[dict[str, tuple[int, int]], int]:
    """Read the tensor descriptions: elements by type, and where the data ends."""
    dtypes: dict[str, tuple[int, int]] = {}
    places: list[tuple[int, int, str]] = []
    for _ in range(count):
        name = reader.text()
        shape = [reader.number("Q") for _ in range(_few(reader.number("I"), 8))]
        kind, offset = reader.number("I"), reader.number("Q")
        elements = math.prod(shape)
        label, block, block_bytes = _TYPES.get(kind, (f"type {kind}", 0, 0))
        if block and shape and shape[0] % block:
            raise ValueError(f"{name}: rows of {shape[0]} elements in blocks of {block}")
        places.append((offset, offset + (elements // block * block_bytes if block else 0), name))
        tensors, total = dtypes.get(label, (0, 0))
        dtypes[label] = (tensors + 1, total + elements)
    names = Counter(name for _, _, name in places)
    if twin := next((name for name, times in names.items() if times > 1), None):
        raise ValueError(f"{twin!r} is there twice")
    end = 0
    for begin, stop, name in sorted(places):
        if begin < end:
            raise ValueError(f"{name} begins at byte {begin} of the data, inside another tensor")
        end = stop
    return dtypes, end


class _Reader:
    """Little-endian values from a stream, never more than a header may hold."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.position = 0
        self.strings = 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        if self.position + count > HEADER_LIMIT:
            raise ValueError(f"a header of more than {HEADER_LIMIT >> 20} MiB")
        data = self.stream.read(count)
        self.position += len(data)
        if len(data) < count:
            raise ShortHeader(f"the file ends inside the header, at byte {self.position}")
        return data

    def number(self, form: str) -> Any:
        """One number of a `struct` format."""
        form = f"<{form}"
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> str:
        """A string with its length before it."""
        return self.take(self.number("Q")).decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        """A value; of an array, which is a vocabulary or longer, only that it is one."""
        if kind == _STRING:
            return self.text()
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind != _ARRAY:
            raise ValueError(f"value of unknown type {kind}")
        inner, count = self.number("I"), self.number("Q")
        if inner in _NUMBERS:
            self.take(count * struct.calcsize(f"<{_NUMBERS[inner]}"))
        elif inner == _STRING:
            self.strings += count
            _few(self.strings, _STRING_LIMIT)
            for _ in range(count):
                self.take(self.number("Q"))
        else:
            raise ValueError(f"array of unknown type {inner}")
        return None


def _few(count: int, limit: int) -> int:
    if count > limit:
        raise ValueError(f"{count} where at most {limit} make sense")
    return count


def header_of(data: bytes, size: int, path: Path) -> bool:
    """Whether `data`, the beginning of a file of `size` bytes, holds the whole header.

    Raises:
        ValueError: the header is not true.
    """
    try:
        parse_gguf(path, io.BytesIO(data), size)
    except ShortHeader:
        return False
    return True
