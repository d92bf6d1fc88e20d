"""What is to be published, what the Hub has, and how they differ: plain values, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hubtools.digests import sha256_bytes

RepoType = Literal["model", "dataset"]
Visibility = Literal["public", "private"]

README = "README.md"
RELEASE_RECORD = ".hubtools/release.json"
CARD_LOCK = ".hubtools/card.lock.json"


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of the release.

    Args:
        path: where it goes in the repo, `/` between folders.
        source: where it lies on disk.
        size: bytes.
        sha256: hex digest of the content; the Hub's id for large files.
        git_sha1: git blob id of the content, the Hub's id for small files; empty for files too
            large to be one.
    """

    path: str
    source: Path
    size: int
    sha256: str
    git_sha1: str = ""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file as the Hub lists it: `oid` is a git blob id, of the pointer when `sha256` is given."""

    path: str
    size: int
    oid: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class RemoteState:
    """One repo at one commit.

    Args:
        head: commit id of `main`; None when the repo does not exist or has no commit.
        files: path → file, the whole tree.
        release: `.hubtools/release.json` parsed, or None when absent or not one of ours.
        readme: bytes of `README.md`, or None when there is none.
    """

    repo: str
    repo_type: RepoType
    exists: bool
    private: bool = False
    head: str | None = None
    files: Mapping[str, RemoteFile] = field(default_factory=dict)
    release: Mapping[str, Any] | None = None
    readme: bytes | None = None

    @property
    def readme_sha256(self) -> str | None:
        """Hex sha256 of the remote README, or None."""
        return None if self.readme is None else sha256_bytes(self.readme)


@dataclass(frozen=True, slots=True)
class FileDiff:
    """What one commit would do to one repo.

    Args:
        add, change: files to send: new paths, and paths whose content differs.
        delete: paths that our last release wrote and this one lacks.
        same: paths with equal digests.
        overwrites: those of `change` whose remote content is not what our last release wrote.
    """

    add: tuple[LocalFile, ...]
    change: tuple[LocalFile, ...]
    delete: tuple[str, ...]
    same: tuple[str, ...]
    overwrites: tuple[str, ...] = ()

    @property
    def send(self) -> tuple[LocalFile, ...]:
        """Files to upload, in path order."""
        return tuple(sorted((*self.add, *self.change), key=lambda file: file.path))

    @property
    def size(self) -> int:
        """Bytes to upload at most (the Hub may have some of them)."""
        return sum(file.size for file in self.send)

    @property
    def empty(self) -> bool:
        """The remote tree is already what the release wants: no commit is needed."""
        return not (self.add or self.change or self.delete)


@dataclass(frozen=True, slots=True)
class RepoPlan:
    """One repo that a release is going to write; `files` may be what is known so far."""

    repo: str
    repo_type: RepoType
    files: tuple[LocalFile, ...]
    visibility: Visibility


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A commit that is on the Hub; `already` when an earlier attempt had landed."""

    oid: str
    url: str
    already: bool


def files_record(files: Iterable[LocalFile]) -> dict[str, dict[str, Any]]:
    """The `files` map of `.hubtools/release.json`: path → `{size, sha256, oid?}`.

    `oid` is the git blob id, given for files small enough to be listed by it. Leave the record
    itself out of `files`: it cannot hold its own digest.
    """
    return {
        file.path: {
            "size": file.size,
            "sha256": file.sha256,
            **({"oid": file.git_sha1} if file.git_sha1 else {}),
        }
        for file in sorted(files, key=lambda file: file.path)
    }
