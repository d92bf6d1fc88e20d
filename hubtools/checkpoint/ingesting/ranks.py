"""verl's `model_world_size_W_rank_R.pt`: DTensors of all ranks put side by side, no process group.

Source: verl's FSDP checkpoint manager and model merger (meshes `fsdp` and `ddp × fsdp`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hubtools.checkpoint.ingesting.pieces import (
    Piece,
    Reader,
    SourceTensor,
    covered,
    damaged,
    equal,
)
from hubtools.checkpoint.ingesting.torchfile import (
    Stored,
    TorchFile,
    tensors_of,
    unsupported,
)
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.kinds import missing_ranks
from hubtools.checkpoint.unpickle import read_pickle
from hubtools.errors import CheckError

_NAME = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")
CONFIG = "fsdp_config.json"


def rank_files(folder: Path) -> list[Path]:
    """The weight files of all ranks, in rank order.

    Raises:
        CheckError: HT167 when one is missing, or they come from runs of different sizes.
    """
    named = {file: match for file in folder.iterdir() if (match := _NAME.fullmatch(file.name))}
    sizes = {int(match[1]) for match in named.values()}
    if (folder / CONFIG).is_file():
        told = read_object(folder / CONFIG).get("world_size")
        sizes |= {told} if isinstance(told, int) else set()
    if len(sizes) != 1:
        words = " and ".join(map(str, sorted(sizes)))
        raise mixed(folder, f"files of {words} ranks", f"{CONFIG} and file names must agree")
    world = sizes.pop()
    by_rank = {int(match[2]): file for file, match in named.items()}
    beyond = [by_rank[rank].name for rank in sorted(by_rank) if rank >= world]
    if beyond:
        raise mixed(folder, f"a rank beyond the {world} there were", beyond[0])
    missing = missing_ranks(by_rank, world)
    if missing:
        listed = ", ".join(map(str, missing[:8]))
        raise mixed(
            folder, f"the files of {world - len(by_rank)} of {world} ranks are missing", listed
        )
    return [by_rank[rank] for rank in range(world)]


def read_ranks(files: Sequence[Path]) -> list[SourceTensor]:
    """Every tensor of the model, in the order of the state dict.

    Raises:
        CheckError: HT167 the ranks do not belong together, HT168 a file is damaged, HT169 a layout
            other than plain sharding along one dimension, replicated or not.
    """
    _same_step(files)
    opened = [TorchFile(file) for file in files]
    states = [dict(tensors_of(file.state)) for file in opened]
    for file, state in zip(files, states, strict=True):
        if state.keys() != states[0].keys():
            odd = sorted(state.keys() ^ states[0].keys())
            raise mixed(file, "the ranks hold different tensors", odd[0])
    if not states[0]:
        raise damaged(files[0], "it holds no tensors")
    found = []
    with Reader() as reader:
        for name in states[0]:
            found.append(_joined(name, opened, [state[name] for state in states], reader))
    return found


def _joined(name: str, files: Sequence[TorchFile], parts: Sequence[Any], reader: Reader) -> Any:
    """One tensor from its parts on all ranks."""
    kinds = {(_dtype(part), tuple(part.shape), _placements(part)) for part in parts}
    if len(kinds) != 1:
        raise mixed(files[0].path, f"the ranks disagree about {name}", str(sorted(map(str, kinds))))
    (_, shape, placements) = kinds.pop()
    stored = [file.place(_local(part)) for file, part in zip(files, parts, strict=True)]
    mesh = tuple(parts[0].device_mesh.shape) if placements is not None else (len(files),)
    groups = _groups(name, files, placements or ("R",), mesh)
    for rank, same in groups:
        for other in same:
            if not _equal(stored[rank], stored[other], reader):
                raise mixed(
                    files[other].path,
                    f"{name} is replicated, but differs from {files[rank].path.name}",
                    "Ranks of different steps lie in one directory.",
                )
    dimension = next((int(p[1:]) for p in placements or () if p != "R"), None)
    pieces, begin = [], 0
    for rank, _ in groups:
        part = stored[rank]
        origin = tuple(begin if axis == dimension else 0 for axis in range(len(shape)))
        pieces.append(Piece(part.path, part.offset, part.shape, origin, part.strides, part.record))
        begin += part.shape[dimension] if dimension is not None else 0
    try:
        return covered(name, stored[0].dtype, shape, pieces)
    except ValueError as error:
        raise mixed(files[0].path, str(error), "Its shards come from different runs.") from error


def _groups(
    name: str, files: Sequence[TorchFile], placements: tuple[str, ...], mesh: tuple[int, ...]
) -> list[tuple[int, list[int]]]:
    """(rank, ranks with a copy of its shard), one for each shard, in order."""
    path = files[0].path
    size = 1
    for extent in mesh:
        size *= extent
    if size != len(files):
        raise mixed(path, f"{name} was spread over {size} ranks", f"{len(files)} files are here")
    axes = [axis for axis, placement in enumerate(placements) if placement != "R"]
    if len(axes) > 1 or any(placements[axis][0] != "S" for axis in axes):
        what = f"{name} is spread as {list(placements)}: only one sharded dimension can be read"
        fix = "save the model from the training job in Hugging Face format (verl: save_contents"
        raise unsupported(path, what, f"{fix} with hf_model), then name that directory")
    shards: dict[int, list[int]] = {}
    for rank in range(size):  # init_device_mesh numbers ranks in row-major order
        rest = rank
        place: list[int] = []
        for extent in reversed(mesh):
            rest, index = divmod(rest, extent)
            place.insert(0, index)
        shards.setdefault(place[axes[0]] if axes else 0, []).append(rank)
    return [(ranks[0], ranks[1:]) for _, ranks in sorted(shards.items())]


def _equal(one: Stored, other: Stored, reader: Reader) -> bool:
    """Whether two copies hold the same bytes: by CRC-32, and by reading where that cannot say."""
    if one.crc is not None and (one.crc, one.shape) == (other.crc, other.shape):
        return True
    whole = [
        covered(
            "",
            part.dtype,
            part.shape,
            [Piece(part.path, part.offset, part.shape, (0,) * len(part.shape), part.strides)],
        )
        for part in (one, other)
    ]
    return equal(whole[0], whole[1], reader)


def _dtype(part: Any) -> str:
    return str(part.dtype)


def _local(part: Any) -> Any:
    return getattr(part, "_local_tensor", part)


def _placements(part: Any) -> tuple[str, ...] | None:
    """`R` or `S<dimension>` for each mesh dimension, another name for what is neither; None when
    the tensor is a plain one.
    """
    if not hasattr(part, "_local_tensor"):
        return None
    return tuple(
        "R"
        if placement.is_replicate()
        else f"S{placement.dim}"
        if type(placement).__name__ == "Shard"
        else type(placement).__name__.strip("_").lower()
        for placement in part.placements
    )


def _same_step(files: Sequence[Path]) -> None:
    """The schedules beside the weights have come equally far, where they can be read."""
    steps: dict[int, Path] = {}
    for file in files:
        extra = file.with_name(file.name.replace("model_", "extra_state_", 1))
        try:
            state = read_pickle(extra) if extra.is_file() else None
        except CheckError:
            continue  # random states may hold anything; then there is no evidence
        schedule = state.get("lr_scheduler") if isinstance(state, Mapping) else None
        step = schedule.get("last_epoch") if isinstance(schedule, Mapping) else None
        if isinstance(step, int):
            steps[step] = extra
    if len(steps) > 1:
        words = " and ".join(map(str, sorted(steps)))
        raise mixed(next(iter(steps.values())), f"the ranks are of steps {words}", "")


def mixed(place: Path, what: str, detail: str) -> CheckError:
    """The files here are not the whole of one step."""
    return CheckError(
        "HT167",
        f"not all of one step: {what}",
        where=str(place),
        detail=(*((detail,) if detail else ()), "Nothing was written."),
        next="copy the whole step directory again from where it was trained, then run the same"
        " command",
    )
