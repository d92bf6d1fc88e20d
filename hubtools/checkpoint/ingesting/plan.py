"""What an ingest writes, decided before a byte is written: names, shapes, dtypes and files."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hubtools.checkpoint.headers import BITS
from hubtools.checkpoint.ingesting.dcp import Dcp
from hubtools.checkpoint.ingesting.expected import from_base, from_transformers
from hubtools.checkpoint.ingesting.find import Source
from hubtools.checkpoint.ingesting.match import Match, match
from hubtools.checkpoint.ingesting.pieces import FLOATS, Reader, SourceTensor, equal
from hubtools.checkpoint.ingesting.plain import read_pickles, read_safetensors
from hubtools.checkpoint.ingesting.ranks import read_ranks
from hubtools.checkpoint.ingesting.wanted import Expected, Shapes, number_kind
from hubtools.checkpoint.inspect import DTYPES
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.shards import INDEX, SINGLE
from hubtools.errors import CheckError

SHARD_BYTES = 5_000_000_000
_LISTED = 6


class Tensors(Protocol):
    """The tensors of an opened checkpoint: shapes of all, places of one when asked."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape by name as saved."""

    def tensor(self, name: str) -> SourceTensor:
        """One of them with its pieces."""


class Listed:
    """Tensors whose places are all known."""

    def __init__(self, tensors: Sequence[SourceTensor]) -> None:
        self._by_name = {tensor.name: tensor for tensor in tensors}
        self.shapes = {name: tensor.shape for name, tensor in self._by_name.items()}

    def tensor(self, name: str) -> SourceTensor:
        """One of them with its pieces."""
        return self._by_name[name]


@dataclass(frozen=True, slots=True)
class Target:
    """One tensor of the result: elements of `source` from `start` on, cast to `dtype`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    source: SourceTensor
    start: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size of its data in the file."""
        return self.elements * BITS[self.dtype] // 8


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """A checked ingest.

    Args:
        files: weight file name → its tensors, in file order.
        dtype: what config.json says afterwards, in torch's words.
        dropped: saved duplicates that are not written, because they are tied.
        checked: against what names and shapes were checked.
    """

    files: Mapping[str, tuple[Target, ...]]
    dtype: str
    dropped: tuple[str, ...]
    checked: str

    def targets(self) -> list[Target]:
        """Every tensor of the result."""
        return [target for file in self.files.values() for target in file]

    @property
    def bytes(self) -> int:
        """Bytes of tensor data in all files."""
        return sum(target.bytes for target in self.targets())

    def index(self) -> dict[str, Any]:
        """Content of model.safetensors.index.json."""
        places = {target.name: name for name, file in self.files.items() for target in file}
        return {
            "metadata": {
                "total_parameters": sum(target.elements for target in self.targets()),
                "total_size": self.bytes,
            },
            "weight_map": dict(sorted(places.items())),
        }


def open_tensors(source: Source) -> Tensors:
    """The tensors of what `find_source` found; no data is read.

    Raises:
        CheckError: HT104, HT105, HT167, HT168, HT169.
    """
    if source.kind == "safetensors":
        return Listed(read_safetensors(source.folder))
    if source.kind == "dcp":
        return Dcp(source.folder)
    if source.kind == "verl-fsdp":
        return Listed(read_ranks(source.files))
    return Listed(read_pickles(source.files))


def plan_model(
    run: Path, source: Source, tensors: Tensors, config: Path, base: Path | None, dtype: str | None
) -> IngestPlan:
    """Match every saved tensor to one of the model's, and choose dtypes and files.

    Args:
        run: as the user named it, for messages.
        source: what was found there.
        tensors: the same, opened.
        config: directory of the config.json that will be published.
        base: directory of the base model, its weights optional.
        dtype: one of `ingest.DTYPES`; None keeps what is stored if that is what the
            configuration declares.

    Raises:
        CheckError: HT170 the dtype must be chosen, HT171 names or shapes do not fit, HT173 the
            model is not known, HT174 tied tensors differ.
    """
    fields = read_object(config / "config.json")
    expected, found = _match(source, tensors.shapes, config, base, fields)
    opened = {name: tensors.tensor(name) for name in {v.source for v in found.views.values()}}
    _check_kinds(source, expected, found, opened)
    _check_twins(source, tensors, found)
    floats: Counter[str] = Counter()
    for tensor in opened.values():
        floats[tensor.dtype] += tensor.elements
    target = _target_dtype(run, floats, _declared(fields, base), dtype)
    targets = []
    for name, view in found.views.items():
        tensor = opened[view.source]
        cast = dtype is not None and tensor.dtype in FLOATS
        wide = name in expected.wide and tensor.dtype == "F32"
        kind = target if cast and not wide else tensor.dtype
        targets.append(Target(name, kind, view.shape, tensor, view.start))
    dropped = tuple(twin for twin, _ in found.twins)
    return IngestPlan(_files(targets), DTYPES.get(target, ""), dropped, expected.origin)


def declared_dtype(fields: Mapping[str, Any]) -> str | None:
    """The dtype a config.json declares, in torch's words; None for `auto` and what else is none."""
    text = fields.get("text_config")
    for place in (fields, text if isinstance(text, Mapping) else {}):
        for key in ("dtype", "torch_dtype"):
            value = place.get(key)
            if isinstance(value, str) and value.removeprefix("torch.") in DTYPES.values():
                return value.removeprefix("torch.")
    return None


def _match(
    source: Source, shapes: Shapes, config: Path, base: Path | None, fields: Mapping[str, Any]
) -> tuple[Expected, Match]:
    """The base's own layout when it fits, else the one transformers knows."""
    known: set[str] = set()
    if base is not None and any((base / name).is_file() for name in (SINGLE, INDEX)):
        expected = from_base(base, fields)
        found = match(expected, shapes)
        if not found.problems:
            return expected, found
        known = set(expected.disk)
    layouts = sorted(from_transformers(config), key=lambda one: set(one.disk) != known)
    tries = [(one, match(one, shapes)) for one in layouts]
    expected, found = min(tries, key=lambda one: len(one[1].problems))
    if found.problems:
        more = len(found.problems) - _LISTED
        listed = (*found.problems[:_LISTED], *((f"and {more} more",) if more > 0 else ()))
        raise CheckError(
            "HT171",
            f"the saved tensors are not those of {expected.origin}",
            where=str(source.folder),
            detail=(*listed, "Nothing was written."),
            next="check that config.json (in the run, or of --base) is the trained model's and that"
            " the run holds it once, then run the same command again",
        )
    return expected, found


def _check_kinds(
    source: Source, expected: Expected, found: Match, opened: Mapping[str, SourceTensor]
) -> None:
    """Quantised weights are not what was trained; without their scales they mean nothing."""
    odd = [
        f"{name} is {opened[view.source].dtype}, expected {kind}"
        for name, view in found.views.items()
        if (kind := number_kind(expected.dtypes[name])) != number_kind(opened[view.source].dtype)
    ]
    if odd:
        more = len(odd) - _LISTED
        raise CheckError(
            "HT171",
            f"{len(odd)} tensors do not hold the kind of number that {expected.origin} has",
            where=str(source.folder),
            detail=(
                *odd[:_LISTED],
                *((f"and {more} more",) if more > 0 else ()),
                "Nothing was written: a quantisation cannot be undone here.",
            ),
            next="save the weights that were trained, before they are quantised, then run the same"
            " command again",
        )


def _check_twins(source: Source, tensors: Tensors, found: Match) -> None:
    with Reader() as reader:
        for twin, kept in found.twins:
            if not equal(tensors.tensor(twin), tensors.tensor(kept), reader):
                raise CheckError(
                    "HT174",
                    f"{twin} and {kept} differ, but config.json says they are tied",
                    where=str(source.folder),
                    detail=("One of them would be lost; nothing was written.",),
                    next="set tie_word_embeddings to false in config.json, then run the same"
                    " command again",
                )


def _declared(fields: Mapping[str, Any], base: Path | None) -> dict[str, str]:
    """Who declares which dtype, in torch's words. A trainer may write down its own masters'."""
    found = {"config.json": declared_dtype(fields)}
    if base is not None and (base / "config.json").is_file():
        found["the base"] = declared_dtype(read_object(base / "config.json"))
    return {who: dtype for who, dtype in found.items() if dtype is not None}


def _target_dtype(
    run: Path, floats: Counter[str], declared: Mapping[str, str], dtype: str | None
) -> str:
    """In safetensors' words; never another one than is stored unless it was asked for."""
    names = {torch: name for name, torch in DTYPES.items()}
    if dtype is not None:
        return names[dtype]
    stored = max((name for name in floats if name in FLOATS), key=lambda n: floats[n], default="")
    others = {who: d for who, d in declared.items() if stored and d != DTYPES[stored]}
    if not others:
        return stored
    who, other = next(iter(others.items()))
    kept = DTYPES[stored]
    word = shlex.quote(str(run))
    choices = [f"hubtools ingest {word} -o OUT --dtype {name}" for name in (other, kept)]
    raise CheckError(
        "HT170",
        f"the weights are {kept}, {who} declares {other}: which one?",
        where=str(run),
        detail=(
            f"{kept} keeps every bit that was trained: {choices[1]}",
            f'In family.toml: [ingest] dtype = "{other}"',
            "Nothing was written.",
        ),
        next=f"{choices[0]}  # each value rounded once",
    )


def _files(targets: Iterable[Target]) -> dict[str, tuple[Target, ...]]:
    """Shards of at most 5 GB, in model order; in a file wide dtypes come first, to stay aligned."""
    shards: list[list[Target]] = [[]]
    filled = 0
    for target in targets:
        if shards[-1] and filled + target.bytes > SHARD_BYTES:
            shards.append([])
            filled = 0
        shards[-1].append(target)
        filled += target.bytes
    ordered = [tuple(sorted(shard, key=lambda t: -BITS[t.dtype])) for shard in shards]
    if len(ordered) == 1:
        return {SINGLE: ordered[0]}
    count = len(ordered)
    return {f"model-{i:05}-of-{count:05}.safetensors": s for i, s in enumerate(ordered, 1)}
