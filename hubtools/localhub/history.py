"""Reading and writing a repo's history: revisions, trees, blobs, commits, refs.

Every function works inside the transaction it is given.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from hubtools.localhub.failures import entry_not_found, revision_not_found
from hubtools.localhub.gitobjects import (
    Commit,
    TreeEntry,
    build_trees,
    decode_commit,
    decode_tree,
    encode_commit,
    lfs_pointer,
    object_id,
)

HEADS, TAGS = "refs/heads/", "refs/tags/"


@dataclass(frozen=True, slots=True)
class Blob:
    """A file's content.

    Args:
        oid: git's id; for an LFS file that of its pointer text.
        sha256: of the content itself.
        size: of the content, in bytes.
        lfs: whether git holds a pointer to it.
    """

    oid: str
    sha256: str
    size: int
    lfs: bool


def lfs_blob(sha256: str, size: int) -> Blob:
    """The blob of an LFS file."""
    return Blob(object_id("blob", lfs_pointer(sha256, size)), sha256, size, True)


def remember_blob(connection: sqlite3.Connection, blob: Blob) -> None:
    """Record what a blob id stands for."""
    connection.execute(
        "INSERT OR IGNORE INTO blobs (oid, sha256, size, lfs) VALUES (?, ?, ?, ?)",
        (blob.oid, blob.sha256, blob.size, blob.lfs),
    )


def get_blob(connection: sqlite3.Connection, oid: str) -> Blob:
    """The blob of this id, which some tree names."""
    row = connection.execute("SELECT * FROM blobs WHERE oid = ?", (oid,)).fetchone()
    return Blob(row["oid"], row["sha256"], row["size"], bool(row["lfs"]))


def find_ref(connection: sqlite3.Connection, repo: int, ref: str) -> str | None:
    """The commit that a full ref name (`refs/heads/main`) points to."""
    row = connection.execute(
        "SELECT oid FROM refs WHERE repo = ? AND ref = ?", (repo, ref)
    ).fetchone()
    return str(row["oid"]) if row else None


def resolve_revision(connection: sqlite3.Connection, repo: int, revision: str) -> str:
    """The commit id that a branch, tag, full ref, `HEAD` or commit id names.

    Raises:
        ApiFailure: 404 RevisionNotFound.
    """
    name = "main" if revision == "HEAD" else revision
    for ref in (name, HEADS + name, TAGS + name):
        oid = find_ref(connection, repo, ref)
        if oid is not None:
            return oid
    if re.fullmatch(r"[0-9a-f]{40}", name):
        row = connection.execute(
            "SELECT oid FROM commits WHERE repo = ? AND oid = ?", (repo, name)
        ).fetchone()
        if row:
            return name
    raise revision_not_found(revision)


def get_commit(connection: sqlite3.Connection, oid: str) -> Commit:
    """The commit of this id, which is in some repo."""
    return decode_commit(_git_object(connection, oid))


def get_tree(connection: sqlite3.Connection, oid: str) -> list[TreeEntry]:
    """Entries of one tree, in git's order."""
    return decode_tree(_git_object(connection, oid))


def _git_object(connection: sqlite3.Connection, oid: str) -> bytes:
    row = connection.execute("SELECT data FROM git_objects WHERE oid = ?", (oid,)).fetchone()
    return bytes(row["data"])


def log(connection: sqlite3.Connection, oid: str) -> Iterator[tuple[str, Commit]]:
    """Commits from this one back to the first, newest first."""
    current: str | None = oid
    while current is not None:
        commit = get_commit(connection, current)
        yield current, commit
        current = commit.parent


def find_entry(connection: sqlite3.Connection, tree: str, path: str) -> TreeEntry | None:
    """The entry at a path below a tree; the empty path is the tree itself."""
    entry = TreeEntry("40000", "", tree)
    for name in path.split("/") if path else ():
        if not entry.is_tree:
            return None
        found = [e for e in get_tree(connection, entry.oid) if e.name == name]
        if not found:
            return None
        entry = found[0]
    return entry


def walk(
    connection: sqlite3.Connection, tree: str, prefix: str = "", *, recursive: bool = True
) -> Iterator[tuple[str, TreeEntry]]:
    """(path, entry) of everything below a tree: folders before what is in them."""
    for entry in get_tree(connection, tree):
        path = f"{prefix}{entry.name}"
        yield path, entry
        if recursive and entry.is_tree:
            yield from walk(connection, entry.oid, path + "/")


def files_of(connection: sqlite3.Connection, commit: str) -> dict[str, str]:
    """Path → blob id of every file in a commit."""
    tree = get_commit(connection, commit).tree
    return {path: e.oid for path, e in walk(connection, tree) if not e.is_tree}


def file_at(connection: sqlite3.Connection, commit: str, path: str, revision: str) -> Blob:
    """The file at a path of a commit (`revision` is only for the message).

    Raises:
        ApiFailure: 404 EntryNotFound.
    """
    entry = find_entry(connection, get_commit(connection, commit).tree, path)
    if entry is None or entry.is_tree:
        raise entry_not_found(path, revision)
    return get_blob(connection, entry.oid)


def add_commit(
    connection: sqlite3.Connection,
    repo: int,
    branch: str,
    parent: str | None,
    files: Mapping[str, str],
    author: str,
    when: int,
    message: str,
) -> str:
    """Write trees and commit, and move the branch to it; returns the commit id.

    Raises:
        TreeConflict: one path is a file and a folder.
    """
    tree, trees = build_trees(files)
    email = f"{author}@users.noreply.localhost"
    data = encode_commit(Commit(tree, parent, author, email, when, message))
    oid = object_id("commit", data)
    rows = [(t, "tree", content) for t, content in trees.items()] + [(oid, "commit", data)]
    connection.executemany(
        "INSERT OR IGNORE INTO git_objects (oid, kind, data) VALUES (?, ?, ?)", rows
    )
    connection.execute("INSERT OR IGNORE INTO commits (repo, oid) VALUES (?, ?)", (repo, oid))
    set_ref(connection, repo, HEADS + branch, oid)
    return oid


def set_ref(
    connection: sqlite3.Connection, repo: int, ref: str, oid: str, message: str = ""
) -> None:
    """Make a ref point to a commit of the repo."""
    connection.execute(
        "INSERT INTO refs (repo, ref, oid, message) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (repo, ref) DO UPDATE SET oid = excluded.oid, message = excluded.message",
        (repo, ref, oid, message),
    )


def iso_date(when: int) -> str:
    """Seconds since 1970 as the Hub writes dates."""
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
