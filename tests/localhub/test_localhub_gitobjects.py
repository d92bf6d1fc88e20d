"""Object ids against git itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from localhub_client import Client, lfs, regular

from hubtools.digests import git_blob_sha1, sha256_bytes
from hubtools.localhub.database import Database
from hubtools.localhub.gitobjects import (
    Commit,
    TreeConflict,
    TreeEntry,
    build_trees,
    decode_commit,
    decode_tree,
    encode_commit,
    encode_tree,
    lfs_pointer,
    object_id,
)
from hubtools.localhub.server import LocalHub

OID = st.binary(min_size=20, max_size=20).map(bytes.hex)
NAME = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=12
)


def git(folder: Path, *arguments: str, data: bytes = b"", **env: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, input=data, capture_output=True, check=True, env=env or None)
    return done.stdout.decode().strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    return tmp_path


def test_blob_and_pointer_ids_are_gits(checkout: Path) -> None:
    for data in (b"", b"hello\n", bytes(range(256)), lfs_pointer("ab" * 32, 12345)):
        assert git(checkout, "hash-object", "--stdin", data=data) == object_id("blob", data)
        assert git_blob_sha1(data) == object_id("blob", data)


def test_tree_ids_are_gits_also_where_a_folder_sorts_after_a_file(checkout: Path) -> None:
    blob = git(checkout, "hash-object", "-w", "--stdin", data=b"x")
    files = ["a.txt", "a/b", "a-b", "a0", "data/sft/ü.jsonl", "data/x y", "z"]
    root, trees = build_trees(dict.fromkeys(files, blob))
    for name in files:
        git(checkout, "update-index", "--add", "--cacheinfo", f"100644,{blob},{name}")
    assert git(checkout, "write-tree") == root
    assert len(trees) == 4


def test_commit_ids_are_gits(checkout: Path) -> None:
    tree, trees = build_trees({"f": git(checkout, "hash-object", "-w", "--stdin", data=b"x")})
    git(checkout, "hash-object", "-t", "tree", "-w", "--stdin", data=trees[tree])
    parent = None
    for message in ("one line", "title\n\nbody\nmore ünïcode"):
        commit = Commit(tree, parent, "ann", "ann@example.org", 1_700_000_000, message)
        who = {
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in (
                ("NAME", "ann"),
                ("EMAIL", "ann@example.org"),
                ("DATE", "1700000000 +0000"),
            )
        }
        parents = ["-p", parent] if parent else []
        arguments = ["commit-tree", tree, *parents, "-F", "-"]
        theirs = git(
            checkout, *arguments, data=message.encode() + b"\n", PATH="/usr/bin:/bin", **who
        )
        parent = object_id("commit", encode_commit(commit))
        assert theirs == parent


@given(st.dictionaries(NAME, st.tuples(st.sampled_from(["100644", "40000"]), OID), max_size=8))
def test_trees_come_back(entries: dict[str, tuple[str, str]]) -> None:
    listed = [TreeEntry(mode, name, oid) for name, (mode, oid) in entries.items()]
    back = decode_tree(encode_tree(listed))
    assert sorted(back, key=lambda e: e.name) == sorted(listed, key=lambda e: e.name)


@given(
    OID,
    st.none() | OID,
    st.integers(0, 2**33),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1),
)
def test_commits_come_back(tree: str, parent: str | None, when: int, message: str) -> None:
    commit = Commit(tree, parent, "ann", "ann@example.org", when, message.rstrip("\n"))
    assert decode_commit(encode_commit(commit)) == commit


@pytest.mark.parametrize("files", [["a", "a/b"], ["a/b", "a"], ["a/b/c", "a/b"]])
def test_a_path_is_a_file_or_a_folder(files: list[str]) -> None:
    with pytest.raises(TreeConflict):
        build_trees(dict.fromkeys(files, "0" * 40))


def test_a_served_history_passes_git_fsck(
    hub: LocalHub, admin: Client, repo: str, checkout: Path
) -> None:
    data = b"\0" * 3000
    admin.create(repo)
    assert admin.upload(repo, data).status_code == 200
    admin.commit(repo, regular("README.md", b"# hi\n"), lfs("sub/w.bin", data))
    admin.commit(repo, {"key": "deletedFile", "value": {"path": "README.md"}})
    head = admin.head(repo)

    database = Database(hub.root)
    with database.reading() as connection:
        for row in connection.execute("SELECT * FROM git_objects").fetchall():
            git(checkout, "hash-object", "-t", row["kind"], "-w", "--stdin", data=row["data"])
    database.close()
    for content in (lfs_pointer(sha256_bytes(data), 3000), b"# hi\n", _attributes(admin, repo)):
        git(checkout, "hash-object", "-w", "--stdin", data=content)
    git(checkout, "update-ref", "refs/heads/main", head)
    git(checkout, "fsck", "--strict", "--no-dangling", head)
    assert git(checkout, "rev-list", "--count", head) == "3"
    assert git(checkout, "ls-tree", "-r", "--name-only", head).split() == [
        ".gitattributes",
        "sub/w.bin",
    ]


def _attributes(admin: Client, repo: str) -> bytes:
    return admin.http.get(f"/{repo}/resolve/main/.gitattributes").content
