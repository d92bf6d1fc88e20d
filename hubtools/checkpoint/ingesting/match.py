"""Which saved tensor becomes which on-disk tensor: every one accounted for, or none. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hubtools.checkpoint.ingesting.keys import cleaned
from hubtools.checkpoint.ingesting.wanted import Expected, Shapes, View


@dataclass(frozen=True, slots=True)
class Match:
    """How saved tensors and a model's on-disk tensors belong together.

    Args:
        views: on-disk name → its place in the tensor saved as `source`.
        twins: (duplicate, tensor it is tied to), as saved; their values must be equal.
        problems: what does not fit, one line each; a match with problems is not used.
    """

    views: Mapping[str, View]
    twins: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = field(default=())


def match(expected: Expected, saved: Shapes) -> Match:
    """Match by names as on disk or, where that fits less, by names as in memory."""
    try:
        names = cleaned(saved, {*expected.memory, *expected.disk})
    except ValueError as error:
        return Match({}, problems=(str(error),))
    disk = {name: View(name, 0, view.shape) for name, view in expected.disk.items()}
    shapes = {name: view.shape for name, view in disk.items()}
    tries = [_matched(disk, shapes, expected.tied, names, saved)]
    if tries[0].problems:
        shapes = {view.source: expected.memory[view.source] for view in expected.disk.values()}
        tries.append(_matched(expected.disk, shapes, expected.tied, names, saved))
    return min(tries, key=lambda one: len(one.problems))


def _matched(
    views: Mapping[str, View],
    shapes: Shapes,
    tied: Mapping[str, str],
    names: Mapping[str, str],
    saved: Shapes,
) -> Match:
    found = dict(names)
    twins = []
    for twin, source in tied.items():
        if twin in found and twin not in shapes:
            kept = found.pop(twin)
            if found.setdefault(source, kept) != kept:
                twins.append((kept, found[source]))
    problems = [f"missing: {name} {_shape(shapes[name])}" for name in shapes if name not in found]
    problems += [f"unexpected: {name}" for name in found if name not in shapes]
    problems += [
        f"{name} is {_shape(saved[at])}, expected {_shape(shapes[name])}"
        for name, at in found.items()
        if name in shapes and tuple(saved[at]) != shapes[name]
    ]
    if problems:
        return Match({}, problems=tuple(problems))
    placed = {
        name: View(found[view.source], view.start, view.shape) for name, view in views.items()
    }
    return Match(placed, tuple(twins))


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"
