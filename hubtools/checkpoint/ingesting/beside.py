"""Is this model only the base of a LoRA run? What lies around it in the step directory tells.

Trainers save an adapter in one file and, in another, the model it was trained on: taken for the
fine-tune, that model is the untrained base.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubtools.checkpoint.adapter import CONFIG
from hubtools.checkpoint.ingesting.keys import is_adapted
from hubtools.checkpoint.kinds import TrainerShards, named_step, trainer_shards
from hubtools.checkpoint.unpickle import TABLE_LIMIT, Record, read_pickle
from hubtools.errors import CheckError

LORA = "lora_adapter"
INNER = ("huggingface", "hf_model", "distributed_checkpoint", "pytorch_model_fsdp_0")
PICKLES = (
    "pytorch_model.bin", "pytorch_model_fsdp.bin", "consolidated.pth", "consolidated.00.pth",
    "model.pt",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Evidence:
    """What shows that an adapter was trained here.

    Args:
        place: the file or directory that shows it.
        what: what is there, in words.
        shards: the trainer's shards that hold it, if it lies in such.
    """

    place: Path
    what: str
    shards: TrainerShards | None = None


def adapter_beside(folder: Path) -> Evidence | None:
    """What, in the step directory that `folder` belongs to, shows that an adapter was trained.

    Names of files, and the names of tensors in shards and pickles; none of it is run.

    Raises:
        CheckError: HT172 when there are shards, but none of them can be read.
    """
    places = list(dict.fromkeys(p for above in _around(folder) for p in places_of(above)))
    for place in places:
        if place.name == LORA or (place / LORA).is_dir():
            lora = place if place.name == LORA else place / LORA
            return Evidence(lora, "the adapter that was trained lies there")
        if (place / CONFIG).is_file():
            return Evidence(place / CONFIG, "it configures an adapter that was trained")
    known = {s.folder: s for place in places if (s := trainer_shards(place)) is not None}
    for shards in known.values():
        found = _inside([shards.folder / name for name in _described(shards)], folder, shards)
        if found is not None:
            return found
    pickles = [place / name for place in places for name in PICKLES if (place / name).is_file()]
    for file in pickles:
        found = _inside([file], folder, None)
        if found is not None:
            return found
    return None


def places_of(run: Path) -> list[Path]:
    """Directories of one step that may hold a whole checkpoint, or an adapter."""
    inner = [run, run / "actor"]
    folders = [*inner, *(folder / name for folder in inner for name in INNER)]
    return [folder for folder in folders if folder.is_dir()]


def base_alone(folder: Path, evidence: Evidence, fix: str) -> CheckError:
    """HT172: a model that lies where an adapter was trained on it."""
    return CheckError(
        "HT172",
        f"this is the base of a LoRA run, not what was trained: {evidence.place} shows it",
        where=str(folder),
        detail=(
            f"{evidence.what}.",
            "Published as the fine-tune this would be the untrained base. Nothing was written.",
        ),
        next=fix,
    )


def _around(folder: Path) -> Iterator[Path]:
    """`folder` and the directories above it that belong to the same step."""
    for start in dict.fromkeys((Path(os.path.abspath(folder)), folder.resolve())):
        place = start
        yield place
        for _ in range(3):
            above = place.parent
            if not _within(place, above):
                break
            yield above
            place = above


def _within(place: Path, above: Path) -> bool:
    """Whether a trainer made `place` inside `above`, by its name: users put merged models there."""
    if named_step(place.name) is not None or above == place:
        return False
    return place.name in (*INNER, LORA, "actor") or above.name == "actor"


def _described(shards: TrainerShards) -> tuple[str, ...]:
    """The files that name the tensors of shards; any one of them names all."""
    return (".metadata",) if shards.kind == "dcp" else shards.files


def holds_adapter(files: Sequence[Path], folder: Path) -> bool:
    """Whether torch.save files name a part of an adapted model."""
    return any(_inside([file], folder, None) for file in files)


def _inside(files: list[Path], folder: Path, shards: TrainerShards | None) -> Evidence | None:
    errors = []
    for file in files:
        try:
            names = _keys(read_pickle(file, limit=TABLE_LIMIT))
            name = next(filter(is_adapted, names), None)
        except CheckError as error:
            errors.append(error)
            continue
        if name is None:
            return None
        return Evidence(file, f"it holds {name}, a part of an adapted model", shards)
    if errors and shards is not None and shards.kind in ("verl-fsdp", "dcp"):
        raise CheckError(
            "HT172",
            "cannot tell whether this is what was trained or the base of a LoRA run",
            where=str(folder),
            detail=(f"The shards beside it say so, but: {errors[0].message}", "Nothing written."),
            next="copy the whole step directory again from where it was trained, then run the same"
            " command",
        )
    return None


def _keys(value: Any) -> Iterator[str]:
    """Every string that is a key in nested dicts, lists and records."""
    waiting, seen = [value], set()
    while waiting:
        item = waiting.pop()
        if not isinstance(item, Mapping | Record | list | tuple) or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Mapping):
            yield from (key for key in item if isinstance(key, str))
            waiting += item.values()
            waiting += item.keys()
        elif isinstance(item, Record):
            waiting += [item.args, *item.parts]
        else:
            waiting += item
