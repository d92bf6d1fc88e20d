"""torch.distributed.checkpoint directories, by their `.metadata`: no model is loaded.

`.metadata` is a pickle. It is walked by `read_pickle`, which imports and calls nothing: classes
become inert records, and from those only names, sizes and offsets are taken, each one checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hubtools.checkpoint.headers import DIMENSIONS, is_size
from hubtools.checkpoint.ingesting.pieces import (
    Piece,
    SourceTensor,
    covered,
    damaged,
    row_major,
)
from hubtools.checkpoint.ingesting.torchfile import NAMES, TorchFile, tensors_of, unsupported
from hubtools.checkpoint.unpickle import TABLE_LIMIT, Record, TooLargeForReader, read_pickle
from hubtools.errors import CheckError

METADATA = ".metadata"
_Chunk = tuple[tuple[int, ...], tuple[int, ...]]


class Dcp:
    """A DCP directory: names and shapes at once, places of a tensor when it is asked for.

    Raises:
        CheckError: HT168 `.metadata` does not describe the files beside it, HT180 it is too large
            for this reader.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / METADATA
        if not self.path.is_file():
            raise damaged(
                self.path, "it is missing: the save was interrupted, or it was not copied"
            )
        try:
            fields = _fields(read_pickle(self.path, limit=TABLE_LIMIT))
            self._tensors = dict(_tensors(fields["state_dict_metadata"]))
            self._places = dict(_places(fields["storage_data"]))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise damaged(self.path, f"it describes no checkpoint ({error})") from error
        except TooLargeForReader:
            raise
        except CheckError as error:
            raise damaged(self.path, error.message) from error

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor, those of the optimizer too."""
        return {name: shape for name, (_, shape, _) in self._tensors.items()}

    def tensor(self, name: str) -> SourceTensor:
        """One tensor with its pieces.

        Raises:
            CheckError: HT168 when a piece is missing or is not what `.metadata` says.
        """
        dtype, shape, chunks = self._tensors[name]
        pieces = [self._piece(name, dtype, chunk) for chunk in chunks]
        try:
            return covered(name, dtype, shape, pieces)
        except ValueError as error:
            raise damaged(self.path, str(error)) from error

    def _piece(self, name: str, dtype: str, chunk: _Chunk) -> Piece:
        offsets, sizes = chunk
        if not math.prod(sizes):
            return Piece(self.path, 0, sizes, offsets, row_major(sizes))
        info = self._places.get((name, offsets))
        if info is None:
            raise damaged(self.path, f"it does not say where {name} at {list(offsets)} lies")
        path = self._file(info["relative_path"])
        if info.get("transform_descriptors"):
            what = f"its tensors are stored {' and '.join(map(str, info['transform_descriptors']))}"
            fix = "python -m torch.distributed.checkpoint.format_utils dcp_to_torch"
            raise unsupported(path, what, f"{fix} {self.folder} pytorch_model.bin")
        begin, length = info["offset"], info["length"]
        if begin < 0 or length <= 0 or begin + length > path.stat().st_size:
            raise damaged(path, "it is shorter than .metadata says")
        return _torch_piece(path, begin, length, dtype, chunk)

    def _file(self, name: Any) -> Path:
        if (
            not isinstance(name, str)
            or Path(name).name != name
            or not (self.folder / name).is_file()
        ):
            raise damaged(self.path, f"it names {name!r}, which is not a file beside it")
        return self.folder / name


def _torch_piece(path: Path, begin: int, length: int, dtype: str, chunk: _Chunk) -> Piece:
    offsets, sizes = chunk
    file = TorchFile(path, begin, length)
    found = list(tensors_of(file.state))
    stored = file.place(found[0][1]) if len(found) == 1 else None
    if stored is None or stored.shape != sizes or stored.dtype != dtype:
        raise damaged(path, f"at byte {begin} is not the {dtype} {list(sizes)} of .metadata")
    return Piece(path, stored.offset, sizes, offsets, stored.strides, stored.record)


def _fields(value: Any) -> Mapping[str, Any]:
    """The state of a record: dataclasses are pickled as one dict."""
    if not isinstance(value, Record):
        raise ValueError(f"{type(value).__name__} where a record should be")
    parts = [part for part in value.parts if isinstance(part, Mapping)]
    merged: dict[str, Any] = {}
    for part in parts:
        merged |= part
    return merged


def _tensors(entries: Any) -> Iterator[tuple[str, tuple[str, tuple[int, ...], list[_Chunk]]]]:
    for name, entry in entries.items():
        if not entry.name.endswith(".TensorStorageMetadata"):
            continue  # bytes: schedules, random states, settings
        fields = _fields(entry)
        chunks = [
            (_size(part["offsets"]), _size(part["sizes"]))
            for part in map(_fields, fields["chunks"])
        ]
        dtype = NAMES[_properties(fields["properties"]).removeprefix("torch.")]
        yield str(name), (dtype, _size(fields["size"]), chunks)


def _properties(record: Record) -> str:
    """The dtype in a TensorProperties, whose state is a tuple that begins with it."""
    state = record.parts[0]
    dtype = state["dtype"] if isinstance(state, Mapping) else state[0]
    return str(dtype.name)


def _places(entries: Any) -> Iterator[tuple[tuple[str, tuple[int, ...]], dict[str, Any]]]:
    for key, info in entries.items():
        index = _fields(key.args[0])
        if index.get("offset") is not None:
            place = dict(_fields(info))
            numbers = [place[field] for field in ("offset", "length")]
            if not all(type(number) is int for number in numbers) or "relative_path" not in place:
                raise ValueError("a tensor's place is not one")
            yield (str(index["fqn"]), _size(index["offset"])), place


def _size(value: Any) -> tuple[int, ...]:
    """The numbers of a torch.Size."""
    numbers: Sequence[Any] = value.args[0]
    if len(numbers) > DIMENSIONS or not all(is_size(number) for number in numbers):
        raise ValueError("a tensor's size is none")
    return tuple(numbers)
