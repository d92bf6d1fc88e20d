"""The child process that asks transformers how a model names its tensors; see `names.name_map`.

It walks the same way as transformers' own loading: rename each stored name, collect what is
converted together, run the conversion (on stand-ins, see `names_trace`).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hubtools.checkpoint.naming.names import NameMap, Part
from hubtools.checkpoint.naming.names_model import build, module_kinds, pages_in_out
from hubtools.checkpoint.naming.names_trace import Shape, follow
from hubtools.checkpoint.shards import INDEX, SINGLE, read_weights
from hubtools.children import child_main, no_garbage
from hubtools.progress import Progress


def work(job: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """The result is the JSON of a NameMap."""
    base = Path(job["base"])
    with no_garbage():
        names = _Names(build(base))
    if any((base / file).is_file() for file in (SINGLE, INDEX)):
        disk = {name: entry.shape for name, (_, entry) in read_weights(base).tensors().items()}
    else:
        disk = names.written()
    found = names.forward(disk)
    asked, asked_parts = names.places(job["asked"], found.parts)
    order = {name: found.parts[name] for name in names.shapes if name in found.parts}
    gone = names.shapes.keys() - order.keys() - names.tied.keys() - found.unplaced.keys()
    return NameMap(
        parameters=order,
        shapes=names.shapes,
        asked=asked,
        tied=names.tied,
        modules=module_kinds(names.model),
        asked_parts=asked_parts,
        missing=tuple(name for name in names.shapes if name in gone),
        unplaced=found.unplaced,
        foreign=tuple(sorted(found.foreign)),
        in_out=pages_in_out(names.model),
    ).to_json()


@dataclass
class _Found:
    parts: dict[str, tuple[Part, ...]] = field(default_factory=dict)
    unplaced: dict[str, str] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)


@dataclass
class _Group:
    """Tensors that one converter takes together: (name, pattern that matched)."""

    converter: Any
    members: list[tuple[str, str]] = field(default_factory=list)

    def targets(self, first: str) -> list[str]:
        """All parameters that come out, by the name of the first."""
        pattern, *others = self.converter.target_patterns
        return [first, *(first.replace(pattern, other) for other in others)]


class _Names:
    """One model and transformers' mapping for it."""

    def __init__(self, model: Any) -> None:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter

        self.model = model
        self._state = model.state_dict()
        self.shapes = {name: tuple(tensor.shape) for name, tensor in self._state.items()}
        self.tied = dict(model.all_tied_weights_keys)
        mapping = get_model_conversion_mapping(model)
        self._converters = [item for item in mapping if isinstance(item, WeightConverter)]
        self._renamings = [item for item in mapping if not isinstance(item, WeightConverter)]
        self._followed: dict[Any, dict[int, tuple[Part, ...]]] = {}

    def forward(self, disk: Mapping[str, Shape]) -> _Found:
        """Stored names and shapes → what each parameter is made of."""
        from transformers.core_model_loading import dot_natural_key

        found, groups = _Found(), dict[str, _Group]()
        by_pattern = _by_pattern(self._converters)
        for name in sorted(disk, key=dot_natural_key):
            target, pattern = self._renamed(name)
            if target not in self._state:
                found.foreign.append(name)
            elif pattern is not None:
                group = groups.setdefault(target, _Group(by_pattern[pattern]))
                group.members.append((name, pattern))
            elif target in found.parts:
                found.foreign.append(name)  # transformers takes the first of two, too
            else:
                found.parts[target] = (_whole(name, disk[name]),)
        for target, group in groups.items():
            try:
                found.parts.update(self._converted(group, target, disk))
            except Exception as error:  # whatever an operation raises: only this group is affected
                found.unplaced.update(dict.fromkeys(group.targets(target), _why(error)))
        return found

    def written(self) -> dict[str, Shape]:
        """Names and shapes of the tensors that `save_pretrained` writes for such a model."""
        from transformers.core_model_loading import revert_weight_conversion

        state = {name: tensor for name, tensor in self._state.items() if name not in self.tied}
        tensors = revert_weight_conversion(self.model, state)
        return {name: tuple(tensor.shape) for name, tensor in tensors.items()}

    def places(
        self, asked: Sequence[str], parts: Mapping[str, tuple[Part, ...]]
    ) -> tuple[dict[str, str], dict[str, Part]]:
        """For each name asked for its in-memory name, and its place inside when not the whole."""
        modules = module_kinds(self.model)
        stored = _of_one(parts)
        places, partly = dict[str, str](), dict[str, tuple[str, str]]()
        for name in asked:
            target, pattern = self._renamed(name)
            known = {n for n in (name, target) if n in self._state}
            homes = {n for n in (name, target) if n.rpartition(".")[0] in modules}
            candidates = known or homes
            if len(candidates) != 1:
                continue
            places[name] = candidates.pop()
            if pattern is not None and places[name] == target and name not in self._state:
                partly[name] = (target, pattern)
        inside: dict[str, Part] = {}
        older = self._older() if partly.keys() - stored.keys() else {}
        for name, (target, pattern) in partly.items():
            home = stored.get(name) or older.get(_key(name, target, pattern))
            if home is None:
                del places[name]
            else:
                places[name] = home[0]
                inside[name] = replace(home[1], disk=name)
        return places, inside

    def _older(self) -> dict[tuple[str, str, str], tuple[str, Part]]:
        """Where each tensor of the written layout lies inside the parameter it is a part of."""
        found: dict[tuple[str, str, str], tuple[str, Part]] = {}
        for name, home in _of_one(self.forward(self.written()).parts).items():
            target, pattern = self._renamed(name)
            if pattern is not None:
                found[_key(name, target, pattern)] = home
        return found

    def _renamed(self, name: str) -> tuple[str, str | None]:
        from transformers.core_model_loading import rename_source_key

        prefix = self.model.base_model_prefix
        target, pattern = rename_source_key(
            name, self._renamings, self._converters, prefix, self._state
        )
        if target not in self._state and name in self._state:
            target, pattern = rename_source_key(name, [], [], prefix, self._state)
        return target, pattern

    def _converted(
        self, group: _Group, target: str, disk: Mapping[str, Shape]
    ) -> dict[str, tuple[Part, ...]]:
        """What the parameters are made of that a group of stored tensors becomes.

        Layers are alike: what was followed for one holds for all groups of these shapes.
        """
        targets = group.targets(target)
        results = {name: self.shapes[name] for name in targets if name in self.shapes}
        taken = tuple((pattern, disk[name]) for name, pattern in group.members)
        key = (id(group.converter), taken, tuple(results.values()))
        if key not in self._followed:
            self._followed[key] = self._follow(group, target, disk, results)
        return {
            targets[number]: tuple(
                replace(part, disk=group.members[int(part.disk)][0]) for part in parts
            )
            for number, parts in self._followed[key].items()
        }

    def _follow(
        self,
        group: _Group,
        target: str,
        disk: Mapping[str, Shape],
        results: Mapping[str, Shape],
    ) -> dict[int, tuple[Part, ...]]:
        """By number of the result; parts name stored tensors by their number in the group."""

        def run(stand_ins: Mapping[str, Any], small: Callable[[Shape], Shape]) -> dict[str, Any]:
            converter = copy.deepcopy(group.converter)
            for number, (name, pattern) in enumerate(group.members):
                converter.add_tensor(target, name, pattern, stand_ins[str(number)])
            model = _Scaled(self.shapes, small)
            outputs = converter.convert(target, model=model, config=self.model.config)
            return {n: t[0] if isinstance(t, list) else t for n, t in outputs.items()}

        sources = {str(number): disk[name] for number, (name, _) in enumerate(group.members)}
        targets = group.targets(target)
        return {targets.index(name): parts for name, parts in follow(sources, results, run).items()}


class _Scaled:
    """Stands for the model when an operation asks for the size of a parameter."""

    def __init__(self, shapes: Mapping[str, Shape], small: Callable[[Shape], Shape]) -> None:
        self._shapes, self._small = shapes, small

    def get_parameter(self, name: str) -> Any:
        """An empty tensor of the parameter's shape, at the scale of the stand-ins."""
        import torch

        return torch.empty(self._small(self._shapes[name]), device="meta")


def _by_pattern(converters: Iterable[Any]) -> dict[str, Any]:
    return {pattern: item for item in converters for pattern in item.source_patterns}


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def _of_one(parts: Mapping[str, tuple[Part, ...]]) -> dict[str, tuple[str, Part]]:
    """Stored tensors that are part of one parameter only: which, and where."""
    found: dict[str, list[tuple[str, Part]]] = {}
    for parameter, group in parts.items():
        for part in group:
            found.setdefault(part.disk, []).append((parameter, part))
    return {disk: homes[0] for disk, homes in found.items() if len(homes) == 1}


def _whole(disk: str, shape: Shape) -> Part:
    return Part(disk, None, (0, shape[-2] if len(shape) == 3 else [*shape, 1][0]))


def _key(name: str, target: str, pattern: str) -> tuple[str, str, str]:
    # Two spellings of one tensor differ in words (a renamed block), not in numbers.
    return target, pattern, ".".join(re.findall(r"\d+", name))


if __name__ == "__main__":
    child_main(work)
