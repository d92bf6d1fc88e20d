"""What a base model's tensors are called on disk, in memory and in older releases, told by it.

The mapping is transformers' own, computed in a child process for this very model on the meta device
(about four seconds, no weights read) and kept for the next merge; there is no table of ours that
could grow old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubtools.checkpoint.naming.names_kept import keep, question, recall
from hubtools.children import passing_log, run_child

_OFFLINE = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A rectangle of an in-memory parameter, and the stored tensor that fills it.

    Args:
        disk: name of the stored tensor.
        page: which matrix of a stacked parameter it fills. None: the stored tensor has the same
            pages, or there are none.
        rows: of each page of the parameter, half open; for a vector its elements.
        transposed: each stored matrix is the transpose of what is in memory.
        disk_rows: rows (columns when transposed) of the stored matrix that go here; None: all.
    """

    disk: str
    page: int | None
    rows: tuple[int, int]
    transposed: bool = False
    disk_rows: tuple[int, int] | None = None

    def to_json(self) -> list[Any]:
        """As compact as eighteen thousand expert tensors deserve."""
        return [self.disk, self.page, self.rows, self.transposed, self.disk_rows]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Part:
        """The inverse of `to_json`."""
        disk, page, rows, transposed, disk_rows = data
        inside = None if disk_rows is None else (int(disk_rows[0]), int(disk_rows[1]))
        return cls(disk, page, (int(rows[0]), int(rows[1])), bool(transposed), inside)


@dataclass(frozen=True, slots=True)
class NameMap:
    """Names of one base model.

    Args:
        parameters: in-memory name → the stored tensors that make it up, in state_dict order
            (buffers that are stored included). Without weights in the base: the tensors that
            `save_pretrained` writes.
        shapes: in-memory name → shape, of everything in the state dict.
        asked: name asked for → the in-memory name that transformers gives to a stored tensor of
            that name. The module of that name exists; the parameter does for all but the modules
            PEFT wraps whole. A name that is missing here has no place, or more than one.
        tied: target → source, in-memory names that share one tensor.
        modules: path of each module that owns parameters → what PEFT takes it for (`Linear`,
            `Conv1D`, `Embedding`, `Conv2d`…), or the name of its class.
        asked_parts: name asked for → where in `asked[name]` it lies, when it is not the whole.
        missing: in-memory names that nothing on disk fills; tied targets are not counted.
        unplaced: in-memory name → why its stored tensors cannot be told apart inside it.
        foreign: stored tensors that this model does not have.
        in_out: modules whose stacked matrices lie as [in, out].
    """

    parameters: Mapping[str, tuple[Part, ...]]
    shapes: Mapping[str, tuple[int, ...]]
    asked: Mapping[str, str]
    tied: Mapping[str, str]
    modules: Mapping[str, str]
    asked_parts: Mapping[str, Part] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    unplaced: Mapping[str, str] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    in_out: frozenset[str] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """What the child process hands over, and what a merge job carries."""
        return {
            "parameters": _parts_to_json(self.parameters),
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "asked": dict(self.asked),
            "tied": dict(self.tied),
            "modules": dict(self.modules),
            "asked_parts": {name: part.to_json() for name, part in self.asked_parts.items()},
            "missing": list(self.missing),
            "unplaced": dict(self.unplaced),
            "foreign": list(self.foreign),
            "in_out": sorted(self.in_out),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> NameMap:
        """The inverse of `to_json`."""
        return cls(
            parameters=_parts_from_json(data["parameters"]),
            shapes={name: tuple(shape) for name, shape in data["shapes"].items()},
            asked=data["asked"],
            tied=data["tied"],
            modules=data["modules"],
            asked_parts={n: Part.from_json(part) for n, part in data["asked_parts"].items()},
            missing=tuple(data["missing"]),
            unplaced=data["unplaced"],
            foreign=tuple(data["foreign"]),
            in_out=frozenset(data["in_out"]),
        )


# Sisters are planned, checked and merged over one base, and each asks the same.
_ANSWERED: dict[tuple[Any, ...], NameMap] = {}


def name_map(base: Path, asked: Sequence[str], log: Path | None) -> NameMap:
    """Ask transformers how the model in `base` names its tensors: once for a configuration.

    Args:
        base: directory with config.json; its weights, if there are any, are read for their names
            and shapes only. No code of the model is run.
        asked: names of tensors as an adapter or an old checkpoint would have them.
        log: where the child process tells its story; None: a file that stays only if an error
            names it.

    Raises:
        CheckError: HT160 a model type this transformers does not know, HT161 a model that exists
            only as code of its own, HT162 a config.json no model can be built from; HT10x as
            `read_weights`.
        EnvironmentFailure: HT123 no transformers here, HT904 the child died.
    """
    now = (str(base.absolute()), tuple(asked), _stamps(base))
    if now not in _ANSWERED:
        key = question(base, asked)
        answer = recall(key) if key is not None else None
        if answer is None:
            answer = _ask(base, asked, log)
            if key is not None and now[-1] == _stamps(base):
                keep(key, answer)
        _ANSWERED[now] = NameMap.from_json(answer)
    return _ANSWERED[now]


def _ask(base: Path, asked: Sequence[str], log: Path | None) -> dict[str, Any]:
    with passing_log() if log is None else nullcontext(log) as story:
        return run_child(
            "hubtools.checkpoint.naming.names_child",
            {"base": str(base.absolute()), "asked": list(asked)},
            log=story,
            what=f"reading the names of {base}",
            env=_OFFLINE,
        )


def _stamps(base: Path) -> tuple[tuple[str, int, int, int], ...]:
    files = sorted(file for file in base.iterdir() if file.is_file())
    stats = [(file.name, file.stat()) for file in files]
    return tuple((name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats)


def _parts_to_json(parameters: Mapping[str, tuple[Part, ...]]) -> dict[str, list[Any]]:
    return {name: [part.to_json() for part in parts] for name, parts in parameters.items()}


def _parts_from_json(data: Mapping[str, Any]) -> dict[str, tuple[Part, ...]]:
    return {name: tuple(map(Part.from_json, parts)) for name, parts in data.items()}
