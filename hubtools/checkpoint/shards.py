"""The weight files of a model directory: one file, or shards under an index that must agree."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubtools.checkpoint.headers import Header, TensorEntry, read_header
from hubtools.checkpoint.jsonfile import read_object
from hubtools.errors import CheckError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True, slots=True)
class Weights:
    """Checked headers of all weight files.

    Args:
        headers: by file name, in name order.
        index: the parsed index when the model is sharded.
    """

    headers: dict[str, Header]
    index: dict[str, Any] | None

    @property
    def bytes(self) -> int:
        """Size of all weight files."""
        return sum(header.size for header in self.headers.values())

    def tensors(self) -> dict[str, tuple[str, TensorEntry]]:
        """Tensor name → (file name, entry)."""
        return {
            entry.name: (name, entry)
            for name, header in self.headers.items()
            for entry in header.tensors
        }

    def tensor_bytes(self) -> int:
        """Bytes of tensor data alone: what an index calls `total_size`."""
        return sum(header.size - header.data_start for header in self.headers.values())


def read_weights(path: Path) -> Weights:
    """Read the headers of the model in `path`.

    Raises:
        CheckError: HT101 no weights, HT102 pickles only, HT104 a file that is not whole,
            HT105 index and shards disagree.
    """
    if (path / SINGLE).is_file():
        return Weights({SINGLE: read_header(path / SINGLE)}, None)
    if not (path / INDEX).is_file():
        raise _no_weights(path)
    index = read_object(path / INDEX)
    placed = index.get("weight_map")
    if not isinstance(placed, dict) or not all(isinstance(v, str) for v in placed.values()):
        raise _disagree(path, "weight_map is not a mapping from tensor to file")
    names = sorted(set(placed.values()))
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise _disagree(path, f"{name!r} is not the name of a safetensors file beside it")
        if not (path / name).is_file():
            raise _disagree(path, f"{name} is missing")
    weights = Weights({name: read_header(path / name) for name in names}, index)
    found = [(e.name, name) for name, header in weights.headers.items() for e in header.tensors]
    if sorted(found) != sorted(placed.items()):
        odd = sorted(set(found) ^ set(placed.items()))
        what = f"{odd[0][0]} in {odd[0][1]}" if odd else f"{len(found) - len(placed)} tensors twice"
        raise _disagree(path, f"only one of index and shards has: {what}")
    return weights


def _no_weights(path: Path) -> CheckError:
    pickles = sorted(file.name for pattern in PICKLES for file in path.glob(pattern))
    if pickles:
        return pickled(path / pickles[0], "AutoModelForCausalLM")
    return CheckError(
        "HT101",
        f"no weights here: neither {SINGLE} nor {INDEX}",
        where=str(path),
        detail=("Nothing was written.",),
        next=f"ls {path}  # then name the directory that holds the safetensors files",
    )


def pickled(file: Path, loader: str) -> CheckError:
    """Weights exist only in a format that can run code when it is loaded."""
    convert = (
        f"from transformers import {loader} as M; "
        f"M.from_pretrained({str(file.parent)!r}).save_pretrained({str(file.parent)!r})"
    )
    if loader == "adapter":
        target = file.with_suffix(".safetensors")
        tensors = f"torch.load({str(file)!r}, weights_only=True)"
        convert = (
            "import torch; from safetensors.torch import save_file; "
            f"save_file({tensors}, {str(target)!r})"
        )
    return CheckError(
        "HT102",
        f"{file.name} is a pickle: only safetensors are read and published",
        where=str(file),
        detail=("Nothing was written.",),
        next=f'python -c "{convert}"',
    )


def _disagree(path: Path, what: str) -> CheckError:
    return CheckError(
        "HT105",
        "the weight index does not agree with the shards",
        where=str(path / INDEX),
        detail=(what, "Nothing was written."),
        next="copy or download the model again, then run the same command",
    )
