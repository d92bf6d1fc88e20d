"""Which results of earlier releases still count: the current ones, else the last of each kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubtools.errors import HubtoolsError
from hubtools.release.base import compare_base, find_base
from hubtools.release.context import BASE, Release
from hubtools.release.engine import walk
from hubtools.release.stages import LOCAL_STAGES
from hubtools.release.store import Record


@dataclass(frozen=True, slots=True)
class Live:
    """What a release may still read.

    Args:
        records: every readable record of the store.
        keys: (stage, key) of those that count.
        pending: keys that the next release would work on.
        paths: files and folders that a record which counts names.
    """

    records: tuple[Record, ...]
    keys: frozenset[tuple[str, str]]
    pending: frozenset[str]
    paths: frozenset[Path]

    def needs(self, folder: Path) -> bool:
        """Whether anything at or below `folder` counts."""
        return any(path == folder or folder in path.parents for path in self.paths)


def find_live(release: Release) -> Live:
    """Look at the store as the next release would; nothing is run and no Hub is asked.

    Of each stage and target the record of the present inputs counts. Where there is none, because
    something changed or cannot be read, the newest one does: an unfinished release goes on from it.
    Targets that the manifest no longer names have none.
    """
    current, pending = _current(release)
    records = [release.store.get(stage, key) for stage, key in release.store.keys()]
    readable = tuple(record for record in records if record is not None)
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in readable:
        groups.setdefault((record.stage, record.target), []).append(record)
    targets = {BASE} | {s.record_target(m) for s in LOCAL_STAGES for m in release.family.members}
    counting = [
        _counts(release, group, current)
        for (_, target), group in groups.items()
        if target in targets
    ]
    return Live(
        records=readable,
        keys=frozenset((record.stage, record.key) for record in counting),
        pending=frozenset(pending),
        paths=frozenset(
            release.at(place) for record in counting for place in _places(record.outputs)
        ),
    )


def _current(release: Release) -> tuple[set[str], set[str]]:
    """Keys of the present inputs: those that have a record, and those that have none."""
    try:
        find_base(release)
        compare_base(release)
        cells, _ = walk(release, execute=False)
    except HubtoolsError as error:
        release.note(f"· the present inputs cannot be read: {error}")
        return set(), set()
    cached = {cell.key for cell in cells if cell.action == "cached"}
    return cached, {cell.key for cell in cells if cell.action == "run"}


def _counts(release: Release, group: list[Record], current: set[str]) -> Record:
    for record in group:
        if record.key in current:
            return record
    return max(group, key=lambda r: release.store.path(r.stage, r.key).stat().st_mtime_ns)


def _places(value: Any) -> Iterator[str]:
    """Every path that a record's outputs name."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name in ("source", "folder", "path") and isinstance(inner, str):
                yield inner
            else:
                yield from _places(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _places(inner)
