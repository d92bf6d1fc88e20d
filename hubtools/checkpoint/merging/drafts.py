"""The model as it will be written, while it is planned: each tensor and what happens to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubtools.checkpoint.merging.recipe import Op, Stored
from hubtools.checkpoint.shards import Weights


@dataclass(slots=True)
class Draft:
    """One tensor of the result.

    Args:
        file: the base file it is in; for a new tensor the one it belongs beside.
        source: whose values it starts from.
        base: the base's tensor of this name; None for a new one.
        dtype: it will be stored in.
        kind: what the report sums it up under; empty while nothing was trained here.
    """

    name: str
    file: str
    source: Stored
    base: Stored | None
    dtype: str
    ops: list[Op] = field(default_factory=list)
    kind: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape in the result."""
        return self.source.entry.shape

    @property
    def resized(self) -> bool:
        """Whether it has another shape than in the base."""
        return self.base is not None and self.shape != self.base.entry.shape

    @property
    def replaced(self) -> bool:
        """Whether it starts from the adapter's values instead of the base's."""
        return self.base is not None and self.source.path != self.base.path

    def start_from(self, source: Stored, kind: str = "") -> None:
        """Take other values as the start; what is done to them stays."""
        self.source = source
        self.kind = self.kind or kind


@dataclass(slots=True)
class Sketch:
    """The whole result, in base order.

    Args:
        config: the base's config.json.
        tied: name of a tensor that is not on disk, or need not be → the tensor it shares.
        edits: dotted path in config.json → its new value.
        notes: what the user should know, in sentences.
    """

    base: Path
    config: Mapping[str, Any]
    weights: Weights
    drafts: dict[str, Draft]
    tied: dict[str, str] = field(default_factory=dict)
    edits: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, sentence: str) -> None:
        """Say something once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def group(self, name: str) -> list[str]:
        """The tensors that are one with this one in the base: its source first."""
        source = self.tied.get(name, name)
        return [source, *(target for target, shared in self.tied.items() if shared == source)]


def sketch(base: Path, config: Mapping[str, Any], weights: Weights) -> Sketch:
    """The base as it is."""
    drafts = {}
    for file, header in weights.headers.items():
        for entry in header.tensors:
            stored = Stored(header.path, entry)
            drafts[entry.name] = Draft(entry.name, file, stored, stored, entry.dtype)
    return Sketch(base, config, weights, drafts)


def module_of(name: str) -> str:
    """The module that owns a parameter: `model.norm` of `model.norm.weight`."""
    return name.rpartition(".")[0]


def kind_of(name: str) -> str:
    """How the report names a parameter: `q_proj`, `q_proj.bias`."""
    module, _, leaf = name.rpartition(".")
    last = module.rpartition(".")[2] or leaf
    return last if leaf == "weight" else f"{last}.{leaf}"
