"""A trainer's own shards, told by the names of files and folders; nothing is opened here."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

TrainerKind = Literal["verl-fsdp", "dcp", "deepspeed", "megatron"]

_VERL = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")
_DCP = re.compile(r"__(\d+)_\d+\.distcp")
_ZERO = re.compile(r"(?:\w+_)?zero_pp_rank_(\d+)_mp_rank_\d+_(?:model|optim)_states\.pt")
_DEEPSPEED = re.compile(r"mp_rank_(\d+)_model_states\.pt")
_STEP = re.compile(r"(?:global_step_?|checkpoint-|step[-_]|iter_)(\d{1,12})")
_WITHIN = re.compile(r"global_step\d+")
_OTHERS = re.compile(r"optim|critic")
_LISTED = 100


@dataclass(frozen=True, slots=True)
class TrainerShards:
    """A trainer's own shards of one step.

    Args:
        kind: whose they are.
        folder: where the shard files lie: the step directory or a folder below it.
        files: names of the files that hold weights, in name order.
        world_size: how many ranks wrote them: by the file names where they say so (the largest
            number, if they disagree), else the number of files.
        ranks: which ranks' files are there.
    """

    kind: TrainerKind
    folder: Path
    files: tuple[str, ...]
    world_size: int
    ranks: tuple[int, ...]

    @property
    def missing(self) -> tuple[int, ...]:
        """The first ranks below `world_size` whose file is not there; `lacking` says how many."""
        return missing_ranks(self.ranks, self.world_size)

    @property
    def lacking(self) -> int:
        """How many ranks below `world_size` have no file."""
        return self.world_size - sum(rank < self.world_size for rank in set(self.ranks))


def missing_ranks(ranks: Collection[int], world_size: int) -> tuple[int, ...]:
    """The first hundred ranks below `world_size`, which only a name claims, that are not there."""
    there = set(ranks)
    absent = (rank for rank in range(world_size) if rank not in there)
    return tuple(islice(absent, _LISTED))


def trainer_kind(path: Path) -> TrainerKind | None:
    """Which trainer's step directory `path` is; None when it holds no shards."""
    shards = trainer_shards(path)
    return shards.kind if shards else None


def trainer_shards(path: Path) -> TrainerShards | None:
    """The shards of one step: in `path`, or in the folder where its trainer keeps them.

    verl's are found from `global_step_N` and from its `actor`; DCP's from the directory with
    `.metadata` and from the one above it; DeepSpeed's from `checkpoint-N` and from the
    `global_stepN` in it. A run of several steps has none of its own.
    """
    for folder in _folders(path):
        names = sorted(file.name for file in folder.iterdir() if file.is_file())
        for kind, find in _FINDERS:
            if found := find(names):
                files, world_size, ranks = found
                return TrainerShards(kind, folder, tuple(files), world_size, tuple(sorted(ranks)))
    return None


def named_step(name: str) -> int | None:
    """The step in a directory name like `global_step_100` or `checkpoint-500`: a claim."""
    match = _STEP.fullmatch(name)
    return int(match[1]) if match else None


def _folders(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        return
    yield path
    below = _below(path)
    yield from below
    for folder in below:
        if folder.name == "actor":
            yield from _below(folder)


def _below(path: Path) -> list[Path]:
    """Folders that may hold the weights of the step `path`, the actor first; a run has none."""
    folders = sorted(p for p in path.iterdir() if p.is_dir() and not _OTHERS.match(p.name))
    steps = [folder for folder in folders if named_step(folder.name) is not None]
    # DeepSpeed puts a step of its own inside the trainer's.
    if len(steps) > 1 or not all(_WITHIN.fullmatch(folder.name) for folder in steps):
        return []
    return sorted(folders, key=lambda folder: folder.name != "actor")


_Found = tuple[list[str], int, set[int]] | None


def _verl(names: Sequence[str]) -> _Found:
    found = {name: match for name in names if (match := _VERL.fullmatch(name))}
    if not found:
        return None
    size = max(int(match[1]) for match in found.values())
    return list(found), size, {int(match[2]) for match in found.values()}


def _megatron(names: Sequence[str]) -> _Found:
    if "model_optim_rng.pt" in names:
        return ["model_optim_rng.pt"], 1, {0}
    files, size, ranks = _dcp(names) or ([], 0, set())
    return (files, size, ranks) if files and {"common.pt", "metadata.json"} <= set(names) else None


def _dcp(names: Sequence[str]) -> _Found:
    found = {name: match for name in names if (match := _DCP.fullmatch(name))}
    if not found and ".metadata" not in names:
        return None
    ranks = {int(match[1]) for match in found.values()}
    return list(found), len(ranks), ranks


def _deepspeed(names: Sequence[str]) -> _Found:
    weights = [name for name in names if _DEEPSPEED.fullmatch(name)]
    states = {name: match for name in names if (match := _ZERO.fullmatch(name))}
    if not weights and not states:
        return None
    ranks = {int(match[1]) for match in states.values()} or set(range(len(weights)))
    return sorted([*weights, *states]), max(ranks) + 1, ranks


_FINDERS: tuple[tuple[TrainerKind, Callable[[Sequence[str]], _Found]], ...] = (
    ("verl-fsdp", _verl),
    ("megatron", _megatron),
    ("dcp", _dcp),
    ("deepspeed", _deepspeed),
)
