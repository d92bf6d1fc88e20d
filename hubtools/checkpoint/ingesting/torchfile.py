"""A torch.save file as a table of places: its tensors are described, not loaded.

`torch.load(weights_only=True, map_location="meta")` runs nothing the file names, reads only its
pickle and says at which byte each storage lies (`_checkpoint_offset`). The zip directory is asked
whether that is true.
"""

from __future__ import annotations

import io
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubtools.checkpoint.ingesting.pieces import Checked, damaged
from hubtools.errors import CheckError

NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64",
    "uint16": "U16", "uint32": "U32", "uint64": "U64",
    "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
_TRUNCATED = "it is truncated, or not in the zip format of torch.save"
_BROKEN = (
    zipfile.BadZipFile, ValueError, LookupError, NotImplementedError, RuntimeError, EOFError,
    OverflowError, struct.error, zlib.error,
)  # fmt: skip
_SHARDED = re.compile(r"_shard\.|ShardedTensor")


@dataclass(frozen=True, slots=True)
class Stored:
    """Where one tensor lies in a file: its first element, in bytes, and its steps in elements.

    Args:
        crc: CRC-32 of its bytes as the zip directory has it; None when its record holds more.
        record: the record it lies in; None when it is empty or no CRC-32 was saved.
    """

    path: Path
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    crc: int | None
    record: Checked | None = None


class TorchFile:
    """One open torch.save file, or one embedded in a larger file.

    Args:
        path: the file.
        begin, length: the part of it that is the torch.save file; all of it by default.

    Raises:
        CheckError: HT168 truncated, not from torch.save, or it asks for code to be run;
            HT169 a kind of sharding that cannot be read without the process group that wrote it.
    """

    def __init__(self, path: Path, begin: int = 0, length: int | None = None) -> None:
        self.path = path
        self._begin = begin
        try:
            with path.open("rb") as stream:
                part = stream if length is None else _Part(stream, begin, length)
                self.state = _load(path, part)
                self._records = _records(part)
        except OSError as error:
            raise damaged(path, error.strerror or str(error)) from error
        except _BROKEN as error:
            raise damaged(path, _TRUNCATED) from error

    def place(self, tensor: Any) -> Stored:
        """Where a tensor of `state` lies.

        Raises:
            CheckError: HT168 when the file says something else than its own directory.
        """
        storage = tensor.untyped_storage()
        offset = storage._checkpoint_offset
        size, crc = self._records.get(offset, (-1, None))
        width = tensor.element_size()
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        last = (
            sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if tensor.numel() else -1
        )
        end = (tensor.storage_offset() + last + 1) * width
        dtype = NAMES.get(str(tensor.dtype).removeprefix("torch."))
        if tensor.numel() == 0 and dtype is not None:
            return Stored(self.path, dtype, 0, shape, strides, None)
        if dtype is None or storage.nbytes() > size or end > size or min(strides, default=0) < 0:
            raise damaged(self.path, f"a tensor of {list(shape)} is not where the file says")
        alone = size == tensor.numel() * width
        start = self._begin + offset + tensor.storage_offset() * width
        record = None if crc is None else Checked(self.path, self._begin + offset, size, crc)
        return Stored(self.path, dtype, start, shape, strides, crc if alone else None, record)


def tensors_of(state: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, tensor) of every tensor in nested dicts; other values are passed over."""
    import torch

    if isinstance(state, torch.Tensor):
        yield prefix, state
    elif isinstance(state, Mapping):
        for name, value in state.items():
            yield from tensors_of(value, f"{prefix}.{name}" if prefix else str(name))


def _load(path: Path, stream: Any) -> Any:
    import torch
    import torch.distributed.tensor

    try:
        return torch.load(stream, map_location="meta", weights_only=True)
    except Exception as error:  # a damaged pickle can raise anything
        text = str(error)
        if _SHARDED.search(text):
            raise unsupported(
                path,
                "it holds ShardedTensors (FSDP1 without a device mesh), which only the process"
                " group that wrote them can read",
                "save again from the training job with a device_mesh or FSDP2, or as a full state"
                " dict (StateDictType.FULL_STATE_DICT)",
            ) from error
        named = re.search(r"GLOBAL (\S+)", text)
        if named is not None:
            raise damaged(path, f"its pickle asks for {named[1]}, which would run code") from error
        words = (text.strip().splitlines() or [""])[0][:200]
        raise damaged(path, _TRUNCATED, f"{type(error).__name__}: {words}") from error


def unsupported(path: Path, what: str, fix: str) -> CheckError:
    """A way of sharding that is not read here; another tool can."""
    return CheckError(
        "HT169",
        f"cannot read {path.name}: {what}",
        where=str(path),
        detail=("Nothing was written.",),
        next=fix,
    )


def _records(stream: Any) -> dict[int, tuple[int, int | None]]:
    """Byte at which the data of each uncompressed record begins → (size, CRC-32).

    `torch.serialization.set_crc32_options(False)` saves zeros for all of them: None then.
    """
    found: dict[int, tuple[int, int | None]] = {}
    with zipfile.ZipFile(stream) as archive:
        records = archive.infolist()
        summed = any(record.CRC for record in records)
        for record in records:
            stream.seek(record.header_offset + 26)
            name, extra = (int.from_bytes(stream.read(2), "little") for _ in range(2))
            begin = record.header_offset + 30 + name + extra
            if record.compress_type == zipfile.ZIP_STORED:
                found[begin] = record.file_size, record.CRC if summed else None
            if record.filename.endswith("/byteorder"):
                stream.seek(begin)
                if stream.read(record.file_size) != b"little":
                    raise ValueError("big-endian")
            elif summed and record.filename.endswith("/data.pkl"):
                archive.read(record)  # it raises when the bytes are not those of the CRC-32
    end = stream.seek(0, os.SEEK_END)
    if any(begin + size > end for begin, (size, _) in found.items()):
        raise ValueError("a record ends behind the end of the file")
    return found


class _Part(io.RawIOBase):
    """A part of an open file, as a file."""

    def __init__(self, stream: Any, begin: int, length: int) -> None:
        self._stream, self._begin, self._length, self._position = stream, begin, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._length}[whence]
        self._position = max(0, start + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        size = max(0, min(len(view), self._length - self._position))
        self._stream.seek(self._begin + self._position)
        count: int = self._stream.readinto(view[:size])
        self._position += count
        return count
