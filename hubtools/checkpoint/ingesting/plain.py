"""Checkpoints that are whole already: safetensors, or one torch.save file with all of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hubtools.checkpoint.headers import BITS, Header
from hubtools.checkpoint.ingesting.pieces import Piece, SourceTensor, covered, damaged, row_major
from hubtools.checkpoint.ingesting.torchfile import TorchFile, tensors_of
from hubtools.checkpoint.shards import read_weights
from hubtools.errors import CheckError


def read_safetensors(folder: Path) -> list[SourceTensor]:
    """Every tensor of a Hugging Face directory, from its headers.

    Raises:
        CheckError: HT101, HT104, HT105 when it is not whole, HT171 when its elements are no bytes.
    """
    headers = read_weights(folder).headers.values()
    for header in headers:
        require_bytes(header)
    return [
        covered(
            entry.name,
            entry.dtype,
            entry.shape,
            [
                Piece(
                    header.path,
                    entry.begin,
                    entry.shape,
                    (0,) * len(entry.shape),
                    row_major(entry.shape),
                )
            ],
        )
        for header in headers
        for entry in header.tensors
    ]


def require_bytes(header: Header) -> None:
    """Check that no tensor is of a dtype with several elements in a byte, as F4.

    Raises:
        CheckError: HT171.
    """
    odd = [entry for entry in header.tensors if BITS[entry.dtype] % 8]
    if odd:
        raise CheckError(
            "HT171",
            f"{odd[0].name} is {odd[0].dtype}: quantised, not what was trained",
            where=str(header.path),
            detail=(f"So are {len(odd)} of {len(header.tensors)} tensors.", "Nothing was written."),
            next="save the weights that were trained, before they are quantised, then run the same"
            " command again",
        )


def read_pickles(files: Sequence[Path]) -> list[SourceTensor]:
    """Every tensor of torch.save files that each hold some of the model.

    Raises:
        CheckError: HT168 damaged, asking for code to be run, or one name in two files.
    """
    found: dict[str, SourceTensor] = {}
    for path in files:
        file = TorchFile(path)
        for name, tensor in tensors_of(file.state):
            if name in found:
                raise damaged(path, f"{name} is in another file too")
            if hasattr(tensor, "_local_tensor"):
                raise damaged(path, f"{name} is one rank's shard, and it is alone")
            at = file.place(tensor)
            piece = Piece(path, at.offset, at.shape, (0,) * len(at.shape), at.strides, at.record)
            found[name] = covered(name, at.dtype, at.shape, [piece])
    return list(found.values())
