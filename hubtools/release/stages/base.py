"""The shape of a stage that works on this machine: what it reads is its key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from hubtools.family.manifest import Member
from hubtools.release.context import Release


class LocalStage(Protocol):
    """One step from digests to digests.

    Attributes:
        name: as users see it.
        version: raised when the same inputs would now give other outputs.
        after: stages of the same target whose outputs this one reads.
    """

    name: str
    version: int
    after: tuple[str, ...]

    def targets(self, release: Release, members: tuple[Member, ...]) -> tuple[Member, ...]:
        """Which targets it has when these members are walked."""

    def record_target(self, member: Member) -> str:
        """Whose result it is: a member's, or one that several members share."""

    def skip(self, release: Release, member: Member) -> str:
        """Why it does not run here; empty when it does."""

    def waits_for(self, release: Release, member: Member) -> str:
        """An earlier step of another target that it needs and that is not done; empty if none."""

    def inputs(self, release: Release, member: Member) -> Mapping[str, Any]:
        """Everything it reads, by digest: the key."""

    def run(self, release: Release, member: Member, key: str) -> Mapping[str, Any]:
        """Do it. The outputs are JSON, with a digest for every file written."""

    def whole(self, release: Release, outputs: Mapping[str, Any]) -> bool:
        """Whether the files a remembered result names are still there, unchanged."""


class Stage:
    """The usual answers, so that a stage states only what is particular to it."""

    name = ""
    version = 1
    after: tuple[str, ...] = ()

    def targets(self, release: Release, members: tuple[Member, ...]) -> tuple[Member, ...]:
        """The members themselves."""
        return members

    def record_target(self, member: Member) -> str:
        """The member."""
        return member.id

    def skip(self, release: Release, member: Member) -> str:
        """Never."""
        return ""

    def waits_for(self, release: Release, member: Member) -> str:
        """Nothing beyond its own target's earlier stages."""
        return ""

    def whole(self, release: Release, outputs: Mapping[str, Any]) -> bool:
        """Facts need no files."""
        return True


def same_files(release: Release, folder: Path, files: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether `folder` still holds every named file with its digest (from the stat cache)."""
    for name, entry in files.items():
        file = folder / name
        if not file.is_file() or file.stat().st_size != entry["size"]:
            return False
        if release.digests.sha256(file) != entry["sha256"]:
            return False
    return True


def input_digests(release: Release, folder: Path) -> dict[str, str]:
    """sha256 of every file of a checkpoint that a stage may read.

    Optimizer and scheduler states are left out: nothing here reads pickles.
    """
    return {
        file.name: release.digests.sha256(file)
        for file in sorted(folder.iterdir())
        if file.is_file()
        and not file.name.startswith(".")
        and file.suffix not in (".pt", ".pth", ".bin", ".pkl")
    }
