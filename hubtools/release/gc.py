"""What earlier releases left behind that nothing refers to any more, and its removal.

Only what hubtools wrote is ever named: files that an engine recorded, and the state beside the
manifest. Evaluation runs are evidence and stay.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hubtools.checkpoint.adapter import open_adapter
from hubtools.errors import EnvironmentFailure, HubtoolsError
from hubtools.files import locked
from hubtools.release.context import BASE, Release
from hubtools.release.freed import delete_files
from hubtools.release.live import Live, find_live

Kind = Literal["weights", "scratch", "copy", "log", "record"]
WORK = ("merge", "ingest")
_MADE = re.compile(r"(?P<name>.+)-(?P<key>[0-9a-f]{8})(-adapter)?")
_COPIES = ("cards", "published", "sealed")


@dataclass(frozen=True, slots=True)
class Garbage:
    """Something to delete.

    Args:
        path: the folder or file.
        files: all that is deleted of it; a folder goes too when nothing else is in it.
        bytes: their size.
        reason: why nothing needs it.
        locks: held while it is deleted, where an engine may be at work.
    """

    kind: Kind
    path: Path
    files: tuple[Path, ...]
    bytes: int
    reason: str
    locks: tuple[Path, ...] = ()

    def to_json(self, release: Release) -> dict[str, Any]:
        """One entry of `store gc --json`."""
        return {
            "kind": self.kind,
            "path": release.stored(self.path),
            "files": len(self.files),
            "bytes": self.bytes,
            "reason": self.reason,
        }


def find_garbage(release: Release) -> list[Garbage]:
    """Everything of the family that no result which counts refers to; nothing is changed.

    Hold the family's lock: a running release makes things before it records them.
    """
    live = find_live(release)
    return [
        *_weights(release, live),
        *_scratch(release, live),
        *_converted(release),
        *_copies(release, live),
        *_logs(release),
        *_records(release, live),
    ]


def delete(release: Release, item: Garbage) -> bool:
    """Delete one thing.

    Returns:
        Whether it is gone; False where an engine is at work in it, or where somebody keeps files of
        their own in it (they are left).

    Raises:
        EnvironmentFailure: HT529.
    """
    with ExitStack() as stack:
        try:
            for lock in filter(Path.is_file, item.locks):
                stack.enter_context(locked(lock, str(item.path)))
        except EnvironmentFailure as error:
            if error.id != "HT903":
                raise
            release.note(f"· kept {release.stored(item.path)}: {error.message}")
            return False
        gone = delete_files(item.path, item.files)
    if not gone:
        release.note(f"· kept {release.stored(item.path)}: it holds files of yours")
    return gone


def _weights(release: Release, live: Live) -> Iterator[Garbage]:
    """Finished folders of merged or ingested weights."""
    for folder, names in sorted(_made(release, live).items()):
        if live.needs(folder) or _pending(folder.name, live) or folder.is_symlink():
            continue
        inside = [
            folder / name
            for name in names
            if (folder / name).parent.resolve().is_relative_to(folder) and (folder / name).is_file()
        ]
        if inside or (folder.is_dir() and not any(folder.iterdir())):
            locks = [work / "lock" for work in _work_folders(folder)]
            yield _garbage("weights", folder, inside, "no current result is made of it", locks)


def _made(release: Release, live: Live) -> dict[Path, set[str]]:
    """Folders that our engines wrote, with the names of the files they wrote there."""
    parents = {member.merged.parent for member in release.family.members}
    found: dict[Path, set[str]] = {}
    for record in live.records:
        for made in record.outputs.get("made", ()):
            folder = release.at(made["folder"])
            if folder.parent in parents and _MADE.fullmatch(folder.name):
                found.setdefault(folder, set()).update(made["files"])
    for member in release.family.members:
        for folder in member.merged.parent.glob(f"{_literal(member.merged.name)}-*"):
            for work in _work_folders(folder):
                if work.is_dir() and _MADE.fullmatch(folder.name):
                    found.setdefault(folder, set()).update(_written(work))
    inputs = _inputs(release)
    return {f: names for f, names in found.items() if not any(_touch(f, i) for i in inputs)}


def _scratch(release: Release, live: Live) -> Iterator[Garbage]:
    """Work folders of engines whose result is not there, or is garbage itself."""
    for member in release.family.members:
        for what in WORK:
            for work in sorted(
                member.merged.parent.glob(f".{_literal(member.merged.name)}-*.{what}")
            ):
                name = work.name.removeprefix(".").removesuffix(f".{what}")
                target = work.with_name(name)
                if not _MADE.fullmatch(name) or _pending(name, live) or work.is_symlink():
                    continue
                if live.needs(target) or any(_touch(work, i) for i in _inputs(release)):
                    continue
                reason = "work that no release goes on with"
                yield _garbage("scratch", work, _files(work), reason, [work / "lock"])


def _converted(release: Release) -> Iterator[Garbage]:
    """Adapters in another format, of pickles that are not there any more, or changed."""
    current = set()
    for member in release.family.members:
        with suppress(HubtoolsError):  # no adapter, or none that can be read: nothing is current
            if member.checkpoint is not None and release.scratch.is_dir():
                current.add(open_adapter(member.checkpoint, release.scratch).weights)
    for file in sorted(release.scratch.glob("*.safetensors")):
        if file not in current:
            yield _garbage("scratch", file, [file], "of a pickle that is not there any more")


def _copies(release: Release, live: Live) -> Iterator[Garbage]:
    for name in _COPIES:
        for folder in sorted((release.state / name).glob("*")):
            if folder.is_dir() and not folder.is_symlink() and not live.needs(folder):
                yield _garbage("copy", folder, _files(folder), "no current result holds it")


def _logs(release: Release) -> Iterator[Garbage]:
    own = (BASE, *(member.id.replace("/", "-") for member in release.family.members))
    for file in sorted((release.state / "logs").glob("*.log")):
        if file.stem != "hub" and not file.stem.endswith(tuple(f"-{name}" for name in own)):
            yield _garbage("log", file, [file], "of no member")


def _records(release: Release, live: Live) -> Iterator[Garbage]:
    for stage, key in release.store.keys():
        if (stage, key) not in live.keys:
            file = release.store.path(stage, key)
            yield _garbage("record", file, [file], "of inputs that are not current")


def _garbage(
    kind: Kind, path: Path, files: Iterable[Path], reason: str, locks: Iterable[Path] = ()
) -> Garbage:
    listed = tuple(files)
    size = sum(file.lstat().st_size for file in listed)
    return Garbage(kind, path, listed, size, reason, tuple(locks))


def _files(folder: Path) -> list[Path]:
    """Every file below; a link counts as itself and is not followed."""
    return [
        Path(inner) / name
        for inner, folders, names in os.walk(folder)
        for name in sorted([*names, *(f for f in folders if (Path(inner) / f).is_symlink())])
    ]


def _work_folders(folder: Path) -> list[Path]:
    return [folder.with_name(f".{folder.name}.{what}") for what in WORK]


def _written(work: Path) -> list[str]:
    """Names of the files that an engine's record lists; none when it cannot be read."""
    try:
        return [
            str(name) for name in json.loads((work / "job.json").read_bytes())["result"]["files"]
        ]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def _pending(name: str, live: Live) -> bool:
    found = _MADE.fullmatch(name)
    return found is not None and any(key.startswith(found["key"]) for key in live.pending)


def _inputs(release: Release) -> list[Path]:
    """Folders of the user's own, which nothing here may touch."""
    places = [release.base_path(), *(member.checkpoint for member in release.family.members)]
    return [place.resolve() for place in places if place is not None]


def _touch(folder: Path, place: Path) -> bool:
    return folder == place or folder in place.parents or place in folder.parents


def _literal(name: str) -> str:
    return re.sub(r"([\[\]*?])", r"[\1]", name)
