"""Names, dtypes and shapes of tensors in pickles, read from their description without loading."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hubtools.checkpoint.headers import DIMENSIONS, TensorEntry
from hubtools.checkpoint.kinds import TrainerShards
from hubtools.checkpoint.unpickle import TABLE_LIMIT, Record, read_pickle

_DTYPES = {
    "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "int8": "I8",
    "uint8": "U8", "int16": "I16", "int32": "I32", "int64": "I64", "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16", "DoubleStorage": "F64",
    "CharStorage": "I8", "ByteStorage": "U8", "ShortStorage": "I16", "IntStorage": "I32",
    "LongStorage": "I64", "BoolStorage": "BOOL",
}  # fmt: skip
_OPTIMIZER = re.compile(r"(?:^|\.)(?:optim|optimizer|exp_avg|exp_avg_sq)(?:\.|$)")


def shard_tensors(shards: TrainerShards) -> list[TensorEntry]:
    """The whole tensors that a trainer's shards make up; empty when that cannot be known.

    Raises:
        CheckError: HT180 a pickle that cannot be read safely.
    """
    if shards.kind == "dcp" and (shards.folder / ".metadata").is_file():
        return _distributed(shards.folder / ".metadata")
    if shards.kind == "verl-fsdp":
        return file_tensors(shards.folder / shards.files[0])
    return []


def file_tensors(path: Path) -> list[TensorEntry]:
    """The tensors of a state dict; of a sharded tensor, the whole. Empty if one is not understood.

    Offsets are 0: the bytes lie elsewhere in the file.

    Raises:
        CheckError: HT180 the pickle cannot be read safely.
    """
    state = read_pickle(path)
    if isinstance(state, Record) and state.parts and isinstance(state.parts[0], dict):
        state = {key: value for part in state.parts for key, value in _named(part)}
        state.pop("_metadata", None)  # of the OrderedDict itself
    entries = []
    for name, value in _named(state):
        entry = _tensor(name, value)
        if entry is None:
            return []
        entries.append(entry)
    return entries


def _distributed(metadata: Path) -> list[TensorEntry]:
    described = _state(read_pickle(metadata, limit=TABLE_LIMIT)).get("state_dict_metadata")
    entries = []
    for name, value in _named(described):
        fields = _state(value)
        size, properties = fields.get("size"), fields.get("properties")
        if isinstance(properties, Record) and properties.parts:
            told = properties.parts[-1]
            kind = told[0] if isinstance(told, tuple) and told else _state(properties).get("dtype")
            entry = _entry(name, kind, size)
            if entry is not None and not _OPTIMIZER.search(name):
                entries.append(entry)
    return entries


def _tensor(name: str, value: Any) -> TensorEntry | None:
    """A tensor from the call that would rebuild it."""
    if not isinstance(value, Record) or not isinstance(value.args, tuple):
        return None
    call, args = value.name.rpartition(".")[2], value.args
    if call == "_rebuild_parameter" and args:
        return _tensor(name, args[0])
    if call == "_rebuild_from_type_v2" and len(args) > 2 and isinstance(args[2], tuple):
        maker, inner = args[0], args[2]
        if isinstance(maker, Record) and maker.name.endswith("._rebuild_wrapper_subclass"):
            return _entry(name, *inner[1:3]) if len(inner) > 2 else None
        return _tensor(name, Record(getattr(maker, "name", ""), inner))
    if call in ("_rebuild_tensor_v2", "_rebuild_tensor") and len(args) > 2:
        storage = args[0]
        told = storage.args[0] if isinstance(storage, Record) and storage.args else None
        return _entry(name, told[1], args[2]) if isinstance(told, tuple) and told[1:] else None
    return None


def _entry(name: str, kind: Any, size: Any) -> TensorEntry | None:
    dtype = _DTYPES.get(kind.name.rpartition(".")[2]) if isinstance(kind, Record) else None
    if isinstance(size, Record) and isinstance(size.args, tuple) and size.args:
        size = size.args[0]  # torch.Size
    if dtype is None or not isinstance(size, tuple | list) or len(size) > DIMENSIONS:
        return None
    if not all(type(count) is int and 0 <= count < 1 << 48 for count in size):
        return None
    return TensorEntry(name, dtype, tuple(size), 0, 0)


def _named(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((key, inner) for key, inner in value.items() if isinstance(key, str))


def _state(value: Any) -> Mapping[str, Any]:
    parts = value.parts if isinstance(value, Record) else ()
    return next((part for part in parts if isinstance(part, dict)), {})
