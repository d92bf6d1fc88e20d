"""The child process that turns an adapter_model.bin into safetensors, running none of its code.

`torch.load(weights_only=True)` builds tensors and plain containers; anything else in the pickle is
refused before it is called.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubtools.children import child_main
from hubtools.errors import CheckError, EnvironmentFailure
from hubtools.files import disk_error
from hubtools.progress import Progress


def work(job: Mapping[str, str], progress: Progress) -> dict[str, Any]:
    """Write the tensors of `job["pickle"]` to `job["target"]`, whole or not at all."""
    pickle, target = Path(job["pickle"]), Path(job["target"])
    try:
        from safetensors.torch import save_file
    except ImportError as error:
        raise EnvironmentFailure(
            "HT123",
            f"torch and safetensors are needed to read {pickle.name}",
            where=str(pickle),
            next="pip install 'hf-hubtools[merge]'",
        ) from error
    tensors = _plain(_load(pickle), pickle)
    temporary = target.with_suffix(".tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, temporary, metadata={"format": "pt"})
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise disk_error(error, target) from error
    return {"tensors": len(tensors)}


def _load(pickle: Path) -> Any:
    import torch

    try:
        with pickle.open("rb") as stream:
            zipped = stream.read(2) == b"PK"
        return torch.load(pickle, map_location="cpu", weights_only=True, mmap=zipped)
    except Exception as error:  # a damaged pickle can raise anything
        named = re.search(r"GLOBAL (\S+)", str(error))
        if named is not None:
            what = f"it asks for {named[1]}"
            raise _unusable(pickle, "its pickle would run code", [what]) from error
        words = (str(error).strip().splitlines() or [""])[0][:200]
        why = "it is damaged or not made by torch.save"
        raise _unusable(pickle, why, [f"{type(error).__name__}: {words}"]) from error


def _plain(found: Any, pickle: Path) -> dict[str, Any]:
    import torch

    if not isinstance(found, Mapping):
        raise _unusable(pickle, f"it holds a {type(found).__name__}, not named tensors", [])
    size = pickle.stat().st_size
    for name, value in found.items():
        if not isinstance(name, str) or not name.isprintable() or name == "__metadata__":
            raise _unusable(pickle, f"{name!r} cannot be the name of a tensor", [])
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            raise _unusable(pickle, f"{name!r} is a {type(value).__name__}, not a plain tensor", [])
        if value.is_meta or value.is_quantized or value.dtype not in _stored():
            kind = "meta (without values)" if value.is_meta else str(value.dtype)
            raise _unusable(pickle, f"{name!r} is {kind}, which safetensors do not hold", [])
        if value.nbytes > size:  # one element repeated by strides of 0
            raise _unusable(pickle, f"{name!r} claims {value.nbytes} bytes of {size}", [])
    if not found:
        raise _unusable(pickle, "it holds no tensors", [])
    tensors: dict[str, Any] = {}
    storages: set[int] = set()
    for name, value in found.items():
        plain = value.detach().contiguous()
        storage = plain.untyped_storage().data_ptr()
        # safetensors stores no sharing; tensors that share memory are written one by one.
        tensors[name] = plain.clone() if storage in storages else plain
        storages.add(storage)
    return tensors


def _stored() -> set[Any]:
    """The dtypes of plain tensors that a safetensors file holds and a header here is read with."""
    import torch

    names = {
        "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
        "float16", "bfloat16", "float32", "float64", "complex64",
        "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
    }  # fmt: skip
    return {getattr(torch, name) for name in names if hasattr(torch, name)}


def _unusable(pickle: Path, why: str, words: list[str]) -> CheckError:
    return CheckError(
        "HT151",
        f"{pickle.name} cannot be used: {why}",
        where=str(pickle),
        detail=(*words, "Nothing in it was run; nothing was written."),
        next="save the adapter again with safetensors: model.save_pretrained(DIR)",
    )


if __name__ == "__main__":
    child_main(work)
