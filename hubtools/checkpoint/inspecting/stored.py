"""The weight files of any directory, read by their headers as far as they can be.

`shards.read_weights` refuses a model that is not whole; this says what is there and what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hubtools.checkpoint import adapter as adapters
from hubtools.checkpoint.headers import Header, TensorEntry, read_header
from hubtools.checkpoint.inspect import DTYPES
from hubtools.checkpoint.inspecting.gguf import GgufInfo, read_gguf
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.shards import INDEX, SINGLE, read_weights
from hubtools.errors import CheckError, Finding

SHARD = re.compile(r"model-(\d{5})-of-(\d{5})\.safetensors")


@dataclass(slots=True)
class Stored:
    """What the weight files of a directory hold.

    Args:
        headers: safetensors file name → its header, of those that are whole.
        ggufs: the GGUF files that are whole.
        pickled: tensors that pickles describe; only their names, dtypes and shapes count.
        missing: files that the index names and that are not there.
        problems: an error finding for each file that is not whole or does not agree.
    """

    headers: dict[str, Header] = field(default_factory=dict)
    ggufs: list[GgufInfo] = field(default_factory=list)
    pickled: list[TensorEntry] = field(default_factory=list)
    missing: tuple[str, ...] = ()
    problems: list[Finding] = field(default_factory=list)

    @property
    def entries(self) -> list[TensorEntry]:
        """Every tensor that is known."""
        inside = [entry for header in self.headers.values() for entry in header.tensors]
        return inside or self.pickled

    def dtypes(self) -> dict[str, tuple[int, int]]:
        """Dtype, in torch's words where it has some → (tensors, elements), most elements first."""
        counts: dict[str, tuple[int, int]] = {}
        for entry in self.entries:
            name = DTYPES.get(entry.dtype, entry.dtype.lower())
            tensors, elements = counts.get(name, (0, 0))
            counts[name] = (tensors + 1, elements + entry.elements)
        for info in self.ggufs:
            for name, (more_tensors, more) in info.dtypes.items():
                tensors, elements = counts.get(name, (0, 0))
                counts[name] = (tensors + more_tensors, elements + more)
        return dict(sorted(counts.items(), key=lambda item: -item[1][1]))


def read_stored(path: Path, files: Mapping[str, int]) -> Stored:
    """Read every header directly in `path`.

    Args:
        path: the directory.
        files: name → bytes of what it holds.
    """
    stored = Stored()
    names = [name for name in files if "/" not in name]
    model = [name for name in names if name.endswith(".safetensors") and name != adapters.WEIGHTS]
    chosen = model
    if SINGLE in files or INDEX in files:
        chosen = _declared(path, stored, model)
    elif any(SHARD.fullmatch(name) for name in model):
        stored.problems.append(_no_index(path, stored, model))
    if adapters.CONFIG in files:
        chosen = [adapters.WEIGHTS] if adapters.WEIGHTS in files else []
    for name in chosen:
        try:
            stored.headers[name] = read_header(path / name)
        except CheckError as error:
            if as_finding(error) not in stored.problems:
                stored.problems.append(as_finding(error))
    for name in (name for name in names if name.endswith(".gguf")):
        try:
            stored.ggufs.append(read_gguf(path / name))
        except CheckError as error:
            stored.problems.append(as_finding(error))
    return stored


def as_finding(error: CheckError) -> Finding:
    """A refusal as one finding: what is wrong is said, that nothing was written is not."""
    details = [text for text in error.detail if "othing was written" not in text]
    text = ": ".join([error.message, *details])
    return Finding(error.id, "error", text, where=error.where, next=error.next)


def _no_index(path: Path, stored: Stored, model: list[str]) -> Finding:
    count = max(int(match[2]) for name in model if (match := SHARD.fullmatch(name)))
    names = [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]
    stored.missing = (INDEX, *(name for name in names if name not in model))
    message = f"shards without their index: {', '.join(stored.missing[:4])} missing"
    fix = "copy or download the model again"
    return Finding("HT105", "error", message, where=str(path), next=fix)


def _declared(path: Path, stored: Stored, model: list[str]) -> list[str]:
    """The files that make up the model, by its index where it has one."""
    try:
        return list(read_weights(path).headers)
    except CheckError as error:
        if error.id != "HT104":
            stored.problems.append(as_finding(error))
    if (path / SINGLE).is_file():
        return [SINGLE]
    try:
        placed = read_object(path / INDEX).get("weight_map")
    except CheckError:
        return model
    values = placed.values() if isinstance(placed, dict) else ()
    named = sorted({name for name in values if isinstance(name, str)})
    stored.missing = tuple(name for name in named if name not in model)
    return [name for name in named if name in model]
