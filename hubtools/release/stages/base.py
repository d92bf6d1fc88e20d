"""The shape of a stage that works on this machine: what it reads is its key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubtools.family.manifest import Member
from hubtools.release.context import Release


class Stage(ABC):
    """One step from digests to digests.

    Attributes:
        name: as users see it.
        version: raised when the same inputs would now give other outputs.
        after: stages of the same target whose outputs this one reads.
    """

    name = ""
    version = 1
    after: tuple[str, ...] = ()

    @abstractmethod
    def inputs(self, release: Release, member: Member) -> Mapping[str, Any]:
        """Everything it reads, by digest: the key."""

    @abstractmethod
    def run(self, release: Release, member: Member, key: str) -> Mapping[str, Any]:
        """Do it. The outputs are JSON, with a digest for every file written."""

    def whole(self, release: Release, outputs: Mapping[str, Any]) -> bool:
        """Whether the files a remembered result names are still there, unchanged."""
        return True

    def again(self, release: Release, member: Member, outputs: Mapping[str, Any]) -> str:
        """Why a remembered result, whole as it is, does not do this time; empty when it does."""
        return ""

    def remark(self, release: Release, outputs: Mapping[str, Any]) -> str:
        """What a plan says about a remembered result; empty when there is nothing to say."""
        return ""

    def summary(self, outputs: Mapping[str, Any]) -> str:
        """What came out, in a few words for the terminal."""
        return ""

    def targets(self, release: Release, members: tuple[Member, ...]) -> tuple[Member, ...]:
        """Which targets it has when these members are walked."""
        return members

    def record_target(self, member: Member) -> str:
        """Whose result it is: a member's, or one that several members share."""
        return member.id

    def skip(self, release: Release, member: Member) -> str:
        """Why it does not run here; empty when it does."""
        return ""

    def waits_for(self, release: Release, member: Member) -> str:
        """What else it needs that is not there yet; empty if nothing."""
        return ""


def same_files(release: Release, files: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether every file is still at its `source` with its digest (from the stat cache).

    One that was deleted once it was published counts as there: its bytes are known.
    """
    for entry in files.values():
        file = release.at(entry["source"])
        if not file.exists() and release.freed.entry(entry["source"], entry["sha256"]):
            continue
        if not file.is_file() or file.stat().st_size != entry["size"]:
            return False
        if release.digests.sha256(file) != entry["sha256"]:
            return False
    return True


def input_digests(release: Release, folder: Path) -> dict[str, str]:
    """sha256 of every file of a checkpoint that a stage may read.

    Optimizer and scheduler states are left out: nothing here reads pickles.
    """
    files = [*folder.iterdir(), *folder.glob("additional_chat_templates/*")]
    return {
        str(file.relative_to(folder)): release.digests.sha256(file)
        for file in sorted(files)
        if file.is_file()
        and not file.name.startswith(".")
        and file.suffix not in (".pt", ".pth", ".bin", ".pkl")
    }
