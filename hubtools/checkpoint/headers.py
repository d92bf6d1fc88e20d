"""The header of a safetensors file, read without its data and believed only after checking.

Source: the safetensors format: 8 bytes little-endian length, that many bytes of JSON, then the
data, which the tensors must cover without gap or overlap.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from hubtools.errors import CheckError

HEADER_LIMIT = 100_000_000
DIMENSIONS = 64
"""Of one tensor; torch allows no more."""
_INTEGER_LIMIT = 1 << 63
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor of a file.

    Args:
        dtype: as in the file, for example `BF16`.
        begin, end: byte offsets from the start of the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Header:
    """A checked header.

    Args:
        data_start: where the tensor data begins, in bytes.
        size: of the whole file, in bytes.
        tensors: by offset; together they cover `data_start` to `size` exactly.
        metadata: the texts of `__metadata__`, which its writer chose.
    """

    path: Path
    data_start: int
    size: int
    tensors: tuple[TensorEntry, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)


def read_header(path: Path) -> Header:
    """Read and check the header of one safetensors file.

    Raises:
        CheckError: HT104 when the file is truncated or its header does not tell the truth.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > HEADER_LIMIT or 8 + length > size:
            raise _lie(path, f"header length {length} in a file of {size} bytes")
        text = stream.read(length)
    try:
        fields = json.loads(text, object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as error:
        raise _lie(path, f"header is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise _lie(path, "header is not a JSON object")
    data_start = 8 + length
    entries = [
        _entry(path, name, value, data_start)
        for name, value in fields.items()
        if name != "__metadata__"
    ]
    entries.sort(key=lambda entry: (entry.begin, entry.end))
    position = data_start
    for entry in entries:
        if entry.begin != position:
            raise _lie(
                path, f"{_clipped(entry.name)} begins at byte {entry.begin}, expected {position}"
            )
        position = entry.end
    if position != size:
        raise _lie(path, f"tensors end at byte {position}, the file at {size}")
    told = fields.get("__metadata__")
    metadata = told if isinstance(told, dict) else {}
    texts = {key: text for key, text in metadata.items() if isinstance(text, str)}
    return Header(path, data_start, size, tuple(entries), texts)


def header_bytes(tensors: Iterable[tuple[str, str, tuple[int, ...], int]]) -> bytes:
    """The header of a file with these tensors in this order, padded to eight bytes.

    Args:
        tensors: name, dtype, shape, size in bytes.
    """
    fields: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, dtype, shape, size in tensors:
        offsets = [position, position + size]
        fields[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}
        position += size
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _entry(path: Path, name: str, value: Any, data_start: int) -> TensorEntry:
    if not isinstance(value, Mapping) or not name.isprintable():
        raise _lie(path, f"{_clipped(repr(name))}: not a tensor")
    called = _clipped(name)
    dtype, shape, offsets = value.get("dtype"), value.get("shape"), value.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise _lie(path, f"{called}: unknown dtype {_shown(dtype)}")
    if not _sizes(shape) or not _sizes(offsets) or len(offsets) != 2:
        raise _lie(path, f"{called}: shape {_shown(shape)}, offsets {_shown(offsets)}")
    begin, end = offsets
    if (end - begin) * 8 != math.prod(shape) * BITS[dtype]:
        raise _lie(path, f"{called}: {end - begin} bytes for {dtype} {shape}")
    return TensorEntry(name, dtype, tuple(shape), data_start + begin, data_start + end)


def is_size(value: Any) -> bool:
    """Whether a number a file claims can be a length: whole, not negative, of 63 bits."""
    return type(value) is int and 0 <= value < _INTEGER_LIMIT


def _sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and len(value) <= DIMENSIONS and all(map(is_size, value))


def _shown(value: Any) -> str:
    """What stands where something else should; never all of what a file chose to say."""
    if isinstance(value, list):
        listed = ", ".join("[…]" if isinstance(i, list) else _shown(i) for i in value[:8])
        return f"[{listed}, …]" if len(value) > 8 else f"[{listed}]"
    if type(value) is int and not -_INTEGER_LIMIT <= value < _INTEGER_LIMIT:
        return "a number too large"
    if isinstance(value, Mapping):
        return "an object"
    return _clipped(repr(value))


def _clipped(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:99]}…"


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        twin = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{_clipped(repr(twin))} is there twice")
    return result


def _lie(path: Path, what: str) -> CheckError:
    return CheckError(
        "HT104",
        "not a whole safetensors file",
        where=str(path),
        detail=(what, "The file was not used; nothing was written."),
        next="copy or download the file again, then run the same command",
    )
