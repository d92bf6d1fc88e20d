"""Everything in a directory that `look` reads, before it is given a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from hubtools.checkpoint import adapter as adapters
from hubtools.checkpoint.adapter import AdapterConfig, read_adapter_config
from hubtools.checkpoint.ingesting.keys import is_adapted
from hubtools.checkpoint.inspecting.contents import list_files
from hubtools.checkpoint.inspecting.describe import Inside, Kind
from hubtools.checkpoint.inspecting.pickled_tensors import file_tensors, shard_tensors
from hubtools.checkpoint.inspecting.stored import SHARD, Stored, as_finding, read_stored
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.kinds import TrainerShards, named_step, trainer_shards
from hubtools.checkpoint.shards import INDEX, SINGLE
from hubtools.checkpoint.trainer import STATE, TrainerState, read_trainer_state
from hubtools.errors import CheckError, Finding

T = TypeVar("T")

_CONFIGS = (
    "config.json", "generation_config.json", "tokenizer_config.json", "processor_config.json",
    "preprocessor_config.json",
)  # fmt: skip
_PICKLED = re.compile(r"(?:pytorch_model.*|adapter_model|model)\.bin|consolidated.*\.pth|model\.pt")


@dataclass(slots=True)
class Found:
    """What lies in a directory.

    Args:
        files: name → bytes.
        complete: whether `files` is all of them.
        holes: names of texts whose content is not there, as in a mirror of a repo.
        stored: the headers of its weights.
        home: where configuration and tokenizer lie: the directory, or beside a trainer's shards.
        inside: checkpoints in folders below.
        configs: JSON files at the top, by name.
        config: the model's configuration, wherever it lies.
        problems: what could not be read.
    """

    root: Path
    files: Mapping[str, int]
    complete: bool
    stored: Stored
    shards: TrainerShards | None
    home: Path
    inside: tuple[Inside, ...]
    holes: Collection[str] = ()
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    adapter: AdapterConfig | None = None
    trainer: TrainerState | None = None
    problems: list[Finding] = field(default_factory=list)

    @property
    def lora_step(self) -> bool:
        """Whether the trainer's shards are of a LoRA run: an adapter lies beside or in them."""
        beside = any(one.kind == "adapter" for one in self.inside)
        return self.shards is not None and (
            beside or any(is_adapted(entry.name) for entry in self.stored.pickled)
        )

    @property
    def pickles(self) -> list[str]:
        """Names of weight files that are pickles."""
        return [name for name in self.files if _PICKLED.fullmatch(name)]


def find(path: Path, *, pickles: bool, holes: Collection[str] = ()) -> Found:
    """Read a directory, or one file with what belongs to it.

    Args:
        path: an existing file or directory.
        pickles: whether to read what pickles say of their tensors.
        holes: names of texts that are not to be read.
    """
    root, shards = path, None
    inside: tuple[Inside, ...] = ()
    if path.is_dir():
        files, complete = list_files(path)
        shards = trainer_shards(path)
        inside = _inside(path, shards)
    else:
        root, files, complete = path.parent, _with_companions(path), True
    home = _home(root, files, shards)
    found = Found(root, files, complete, read_stored(root, files), shards, home, inside, holes)
    found.problems += found.stored.problems
    _read_texts(found)
    if pickles:
        _read_pickles(found)
    return found


def _with_companions(path: Path) -> dict[str, int]:
    """Name → bytes of a file, of the configuration beside it, and of a shard's other shards."""
    names = {path.name}
    if path.name == adapters.WEIGHTS:
        names.add(adapters.CONFIG)
    elif path.suffix == ".safetensors":
        names.add("config.json")
    if shard := SHARD.fullmatch(path.name):
        names.add(INDEX)
        names |= {file.name for file in path.parent.glob(f"model-*-of-{shard[2]}.safetensors")}
    return {
        name: file.stat().st_size
        for name in sorted(names)
        if (file := path.with_name(name)).is_file()
    }


def _read_texts(found: Found) -> None:
    root, problems = found.root, found.problems
    there = found.files.keys() - set(found.holes)
    for name in _CONFIGS:
        if name in there:
            found.configs[name] = _tried(read_object, root / name, problems) or {}
    found.config = found.configs.get("config.json", {})
    if found.home != root:
        found.config = _tried(read_object, found.home / "config.json", problems) or {}
    if STATE in there:
        found.trainer = _tried(read_trainer_state, root, problems)
    if adapters.CONFIG in found.files:
        unread = AdapterConfig(root / adapters.CONFIG, "", 0, 0.0, False, (), "", "", {})
        read = _tried(read_adapter_config, root, problems) if adapters.CONFIG in there else None
        found.adapter = read or unread


def _read_pickles(found: Found) -> None:
    """Take in what pickles say of their tensors, where nothing better is there."""
    stored = found.stored
    if stored.headers or stored.ggufs:
        return
    unread: list[Finding] = []
    if found.shards is not None:
        stored.pickled = _tried(shard_tensors, found.shards, unread) or []
    else:
        for name in found.pickles:
            stored.pickled += _tried(file_tensors, found.root / name, unread) or []
    found.problems += [replace(finding, level="warning") for finding in unread]


def _tried(work: Callable[[Any], T], argument: object, problems: list[Finding]) -> T | None:
    try:
        return work(argument)
    except CheckError as error:
        problems.append(as_finding(error))
        return None


def _home(root: Path, files: Mapping[str, int], shards: TrainerShards | None) -> Path:
    """Where configuration and tokenizer lie: beside the weights, or where verl puts them."""
    if shards is not None and "config.json" not in files:
        for folder in (shards.folder / "huggingface", shards.folder):
            if (folder / "config.json").is_file():
                return folder
    return root


def _inside(root: Path, shards: TrainerShards | None) -> tuple[Inside, ...]:
    """Checkpoints in the folders of `root`, or beside verl's shards; by step, then name."""
    folders = [folder for folder in root.iterdir() if folder.is_dir()]
    if shards is not None:
        folders = [shards.folder / name for name in ("huggingface", "lora_adapter")]
    found = [
        Inside(folder.relative_to(root).as_posix(), kind, named_step(folder.name))
        for folder in folders
        if folder.is_dir() and (kind := _glance(folder)) is not None
    ]
    return tuple(sorted(found, key=lambda one: (one.step is None, one.step or 0, one.name)))


def _glance(folder: Path) -> Kind | None:
    """What a folder is, by names alone."""
    if (folder / adapters.CONFIG).is_file():
        return "adapter"
    weights = any((folder / name).is_file() for name in (SINGLE, INDEX))
    if weights and (folder / "config.json").is_file():
        return "full"
    shards = trainer_shards(folder)
    return shards.kind if shards is not None else None
