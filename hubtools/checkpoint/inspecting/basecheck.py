"""Is a local directory really the model it is said to be? File by file, by the Hub's digests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from hubtools.checkpoint.carry import belongs
from hubtools.checkpoint.modules import brings_code, own_modules
from hubtools.digests import git_blob_sha1, sha256_file
from hubtools.progress import Progress, silent

_PARTS = re.compile(r"model(?:-\d+-of-\d+)?\.safetensors")


class Listed(Protocol):
    """A file as the Hub lists it: `oid` is its git blob id when it has no `sha256`."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def oid(self) -> str:
        """Git blob id; of the pointer when `sha256` is given."""

    @property
    def sha256(self) -> str | None:
        """Of a large file's content."""


@dataclass(frozen=True, slots=True)
class BaseCheck:
    """A local directory held against a commit of a repo.

    Args:
        repo, commit: what it was held against; `commit` is empty when nothing was compared.
        verdict: `equal`: every weight file, and every other file of a model that either side has;
            `differs`; `weights equal`: only other files differ; `unchecked`.
        differing: names of files that differ, with how.
        hashed: bytes that were read to compare them.
        why: for `unchecked`, the reason.
    """

    repo: str
    commit: str
    verdict: Literal["equal", "weights equal", "differs", "unchecked"]
    differing: Mapping[str, str]
    hashed: int
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """The `base_check` object of `--json`."""
        return {
            "repo": self.repo,
            "commit": self.commit,
            "verdict": self.verdict,
            "differing": dict(self.differing),
            "hashed": self.hashed,
            "why": self.why,
        }


def check_base(
    path: Path,
    repo: str,
    commit: str,
    listing: Mapping[str, Listed],
    *,
    progress: Progress = silent,
) -> BaseCheck:
    """Compare the model in `path` with the Hub's listing of a commit.

    A file is read only when its size is right. Files that are no part of a model (README, logs,
    optimizer states) do not count.

    Args:
        path: a model directory.
        repo: the repo the listing is of.
        commit: the commit it is of.
        listing: name → file there.
        progress: bytes hashed.
    """
    here = {
        file.relative_to(path).as_posix(): file
        for file in [*path.iterdir(), *path.glob("additional_chat_templates/*")]
        if file.is_file()
    }
    # Repos also hold their weights in other layouts, which a local copy need not have.
    there = {name for name in listing if not _is_weight(name) or _PARTS.fullmatch(name)}
    modules = own_modules(path)
    code = brings_code(path)  # then any module may be part of it, here or there
    names = sorted(
        name
        for name in {*here, *there}
        if belongs(name, "full", modules) or (code and _is_module(name))
    )
    alike = [n for n in names if n in here and n in listing and _size(here[n]) == listing[n].size]
    total, hashed = sum(listing[name].size for name in alike), 0
    differing: dict[str, str] = {}
    for name in names:
        if name not in here:
            differing[name] = "not here"
        elif name not in listing:
            differing[name] = "not in the repo"
        elif name not in alike:
            differing[name] = f"{_size(here[name])} bytes here, {listing[name].size} there"
        else:
            if not _equal(here[name], listing[name]):
                differing[name] = "other bytes of the same size"
            hashed += listing[name].size
            progress(f"compare with {repo}", hashed, total, "bytes")
    return BaseCheck(repo, commit, _verdict(names, differing), differing, hashed)


def unchecked(repo: str, why: str) -> BaseCheck:
    """Nothing was compared: what the directory says of itself is a claim."""
    return BaseCheck(repo, "", "unchecked", {}, 0, why)


def _verdict(
    names: list[str], differing: Mapping[str, str]
) -> Literal["equal", "weights equal", "differs"]:
    weights = [name for name in names if _is_weight(name)]
    if not weights or any(_is_weight(name) for name in differing):
        return "differs"
    return "weights equal" if differing else "equal"


def _is_weight(name: str) -> bool:
    return name.endswith((".safetensors", ".gguf"))


def _is_module(name: str) -> bool:
    return name.endswith(".py") and "/" not in name


def _equal(file: Path, there: Listed) -> bool:
    if there.sha256 is not None:
        return sha256_file(file) == there.sha256
    return git_blob_sha1(file.read_bytes()) == there.oid


def _size(file: Path) -> int:
    return file.stat().st_size
