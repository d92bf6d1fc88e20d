"""Object ids that git itself would compute. Pure: bytes in, bytes and hex ids out.

The embedded Hub keeps trees and commits as real git objects, so an id it reports can be checked
with `git hash-object`, and the same uploads at the same instant give the same history.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

FILE_MODE = "100644"
TREE_MODE = "40000"

Nested: TypeAlias = "dict[str, str | Nested]"


class TreeConflict(ValueError):
    """One path is a file and a folder at the same time."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One line of a git tree: mode (`100644` or `40000`), name, hex object id."""

    mode: str
    name: str
    oid: str

    @property
    def is_tree(self) -> bool:
        """Whether it names another tree."""
        return self.mode == TREE_MODE


@dataclass(frozen=True, slots=True)
class Commit:
    """What a commit object says; `when` is in whole seconds since 1970, UTC."""

    tree: str
    parent: str | None
    author: str
    email: str
    when: int
    message: str

    @property
    def title(self) -> str:
        """First line of the message."""
        return self.message.split("\n", 1)[0]


def object_id(kind: str, data: bytes) -> str:
    """Hex sha1 of a git object of this kind (`blob`, `tree`, `commit`)."""
    header = b"%s %d\0" % (kind.encode(), len(data))
    return hashlib.sha1(header + data, usedforsecurity=False).hexdigest()


def lfs_pointer(sha256: str, size: int) -> bytes:
    """The text that git stores in place of an LFS file (git-lfs pointer, version 1)."""
    return (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
    )


def encode_tree(entries: Iterable[TreeEntry]) -> bytes:
    """A tree object's content; git sorts folders as if their name ended in a slash."""
    ordered = sorted(entries, key=lambda e: e.name.encode() + (b"/" if e.is_tree else b""))
    return b"".join(
        b"%s %s\0%s" % (e.mode.encode(), e.name.encode(), bytes.fromhex(e.oid)) for e in ordered
    )


def decode_tree(data: bytes) -> list[TreeEntry]:
    """Inverse of `encode_tree`, in git's order."""
    entries = []
    position = 0
    while position < len(data):
        space = data.index(b" ", position)
        end = data.index(b"\0", space)
        oid = data[end + 1 : end + 21].hex()
        entries.append(
            TreeEntry(data[position:space].decode(), data[space + 1 : end].decode(), oid)
        )
        position = end + 21
    return entries


def build_trees(files: Mapping[str, str]) -> tuple[str, dict[str, bytes]]:
    """All trees that hold these files.

    Args:
        files: path with `/` → blob id.

    Returns:
        The root tree's id, and tree id → content of every tree (the root, too).

    Raises:
        TreeConflict: one path is a file and also a folder.
    """
    root: Nested = {}
    for path, oid in files.items():
        *folders, name = path.split("/")
        place = root
        for folder in folders:
            below = place.setdefault(folder, {})
            if isinstance(below, str):
                raise TreeConflict(f"{path}: {folder} is a file, not a folder")
            place = below
        if name in place:
            raise TreeConflict(f"{path} is a folder, not a file")
        place[name] = oid
    trees: dict[str, bytes] = {}
    return _write_tree(root, trees), trees


def _write_tree(folder: Nested, trees: dict[str, bytes]) -> str:
    entries = [
        TreeEntry(FILE_MODE, name, below)
        if isinstance(below, str)
        else TreeEntry(TREE_MODE, name, _write_tree(below, trees))
        for name, below in folder.items()
    ]
    data = encode_tree(entries)
    oid = object_id("tree", data)
    trees[oid] = data
    return oid


def encode_commit(commit: Commit) -> bytes:
    """A commit object's content; committer is the author, time zone UTC."""
    who = f"{commit.author} <{commit.email}> {commit.when} +0000"
    parent = f"parent {commit.parent}\n" if commit.parent else ""
    head = f"tree {commit.tree}\n{parent}author {who}\ncommitter {who}\n\n"
    return head.encode() + commit.message.rstrip("\n").encode() + b"\n"


def decode_commit(data: bytes) -> Commit:
    """Inverse of `encode_commit`, for the commits it wrote."""
    head, _, message = data.decode().partition("\n\n")
    fields = dict(line.split(" ", 1) for line in head.split("\n"))
    who, when, _ = fields["author"].rsplit(" ", 2)
    author, _, email = who.rpartition(" <")
    return Commit(
        fields["tree"], fields.get("parent"), author, email[:-1], int(when), message.rstrip("\n")
    )
