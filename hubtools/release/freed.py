"""Weights that were deleted once they were published: their digests stay, the files do not.

What is noted here may be missing on disk without anything being wrong, as long as nobody reads it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubtools.errors import EnvironmentFailure
from hubtools.family.manifest import Member
from hubtools.files import write_json

if TYPE_CHECKING:
    from hubtools.release.context import Release

SCHEMA = "hubtools.freed/1"


class Freed:
    """The note `.hubtools/freed.json`: place → size and digests of a file that was deleted.

    A note that cannot be read names nothing: the weights are made again, which costs only time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[str, dict[str, Any]] = {}
        try:
            files = json.loads(path.read_bytes())["files"]
            self._files = {name: dict(entry) for name, entry in files.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._files = {}

    def entry(self, stored: str, sha256: str) -> Mapping[str, Any] | None:
        """`{size, sha256, git_sha1}` of the deleted file of these bytes; None when none was."""
        entry = self._files.get(stored)
        return entry if entry is not None and entry.get("sha256") == sha256 else None

    def add(self, files: Mapping[str, Mapping[str, Any]]) -> None:
        """Note files that are about to be deleted.

        Raises:
            EnvironmentFailure: HT901.
        """
        self._files |= {name: dict(entry) for name, entry in files.items()}
        write_json(self._path, {"schema": SCHEMA, "files": self._files})


def missing(release: Release, outputs: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of a merge's published files that were deleted after their release."""
    return tuple(
        name
        for name, entry in outputs["files"].items()
        if release.freed.entry(entry["source"], entry["sha256"])
        and not release.at(entry["source"]).exists()
    )


def free_weights(release: Release, member: Member) -> int:
    """Delete the weight files that were made for a member; call it when the Hub has them.

    Files of the user's own, which are published as they are, are never touched.

    Returns:
        Bytes that were freed.

    Raises:
        EnvironmentFailure: HT529 when a file cannot be deleted.
    """
    outputs = release.done["merge", member.id]
    made = [release.at(made["folder"]) for made in outputs["made"]]
    sealed = {entry["source"]: entry for entry in release.done["seal", member.id]["files"]}
    found = {
        entry["source"]: sealed[entry["source"]]
        for name, entry in outputs["files"].items()
        if name.endswith(".safetensors")
        and release.at(entry["source"]).parent in made
        and release.at(entry["source"]).is_file()
    }
    if not found:
        return 0
    names = ("size", "sha256", "git_sha1")
    release.freed.add({place: {n: entry[n] for n in names} for place, entry in found.items()})
    size = sum(int(entry["size"]) for entry in found.values())
    release.journal.write("freed", member.id, bytes=size)
    for place in found:
        _unlink(release.at(place))
    return size


def delete_files(folder: Path, files: Iterable[Path]) -> bool:
    """Delete `files`, and the folders from `folder` down that hold nothing any more.

    A link is deleted itself, never what it leads to; a file that is gone already is fine.

    Returns:
        Whether `folder` is gone: False where it still holds something else.

    Raises:
        EnvironmentFailure: HT529.
    """
    for file in files:
        _unlink(file)
    for inner, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):  # not empty: somebody's files are in there
            os.rmdir(inner)
    return not folder.exists()


def _unlink(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise EnvironmentFailure(
            "HT529",
            f"cannot delete: {error.strerror or error}",
            where=str(file),
            detail=("What was deleted before stays deleted; everything else is untouched.",),
            next=f"correct the permissions of {file.parent}, then run the same command again",
        ) from error
