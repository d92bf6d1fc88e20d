"""The file diff: laws that hold for any two trees, and who owns what."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubtools.digests import git_blob_sha1, sha256_bytes
from hubtools.hub.diff import diff_files, ours
from hubtools.hub.model import LocalFile, RemoteFile, RemoteState, files_record

NAMES = st.sampled_from(["README.md", "a.bin", "config.json", "d/b.safetensors", "x/y/z.txt"])
TREES = st.dictionaries(NAMES, st.sampled_from([b"", b"one", b"two", b"three"]))


def local(path: str, data: bytes, *, small: bool = True) -> LocalFile:
    git = git_blob_sha1(data) if small else ""
    return LocalFile(path, Path("/nowhere") / path, len(data), sha256_bytes(data), git)


def listed(path: str, data: bytes, *, large: bool = False) -> RemoteFile:
    if large:
        return RemoteFile(path, len(data), git_blob_sha1(b"pointer" + data), sha256_bytes(data))
    return RemoteFile(path, len(data), git_blob_sha1(data))


def state(tree: dict[str, bytes], record: dict[str, bytes] | None = None) -> RemoteState:
    release = None
    if record is not None:
        release = {"files": files_record(local(p, d) for p, d in record.items())}
    files = {p: listed(p, d, large=p.endswith((".bin", ".safetensors"))) for p, d in tree.items()}
    return RemoteState("o/n", "model", True, head="1" * 40, files=files, release=release)


@given(remote=TREES, mine=TREES, record=st.none() | TREES)
def test_applying_the_diff_gives_the_release_and_keeps_what_is_foreign(
    remote: dict[str, bytes], mine: dict[str, bytes], record: dict[str, bytes] | None
) -> None:
    diff = diff_files(state(remote, record), [local(p, d) for p, d in mine.items()])
    after = {**remote, **{f.path: mine[f.path] for f in diff.send}}
    for path in diff.delete:
        del after[path]
    assert {p: after.get(p) for p in mine} == mine
    foreign = {
        p: d for p, d in remote.items() if p not in mine and (record is None or record.get(p) != d)
    }
    assert after == mine | foreign
    assert diff.empty == (after == remote)
    assert sorted([*(f.path for f in diff.send), *diff.same]) == sorted(mine)
    assert diff.size == sum(len(mine[f.path]) for f in diff.send)


def test_a_repo_that_is_not_there_gets_everything() -> None:
    diff = diff_files(RemoteState("o/n", "model", False), [local("b", b"2"), local("a", b"1")])
    assert [f.path for f in diff.add] == ["a", "b"]
    assert not diff.empty
    assert diff.size == 2


def test_a_file_stored_as_large_is_compared_by_sha256_only() -> None:
    remote = state({"m.safetensors": b"one"})
    assert diff_files(remote, [local("m.safetensors", b"one", small=False)]).empty
    assert not diff_files(remote, [local("m.safetensors", b"two", small=False)]).empty


def test_a_large_local_file_never_equals_a_plain_git_blob() -> None:
    assert not diff_files(state({"t.txt": b""}), [local("t.txt", b"", small=False)]).empty


def test_what_a_human_changed_after_our_release_is_named_and_not_deleted() -> None:
    remote = state(
        {"config.json": b"theirs", "old.json": b"theirs", "gone.json": b"ours"},
        record={"config.json": b"ours", "old.json": b"ours", "gone.json": b"ours"},
    )
    diff = diff_files(remote, [local("config.json", b"new")])
    assert diff.overwrites == ("config.json",)
    assert diff.delete == ("gone.json",)


def test_our_own_record_is_no_stranger() -> None:
    files = {".hubtools/release.json": b"the last one", "config.json": b"ours"}
    new = [local(".hubtools/release.json", b"the next one"), local("config.json", b"ours")]
    assert diff_files(state(files, record={"config.json": b"ours"}), new).overwrites == ()
    assert diff_files(state(files), new).overwrites == (".hubtools/release.json",)


def test_kept_paths_are_not_deleted() -> None:
    remote = state({"gone.json": b"1"}, record={"gone.json": b"1"})
    assert diff_files(remote, [], keep=["gone.json"]).delete == ()


def test_one_path_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a\.txt is there twice"):
        diff_files(state({}), [local("a.txt", b"1"), local("a.txt", b"2")])


@pytest.mark.parametrize(
    ("tree", "record", "answer"),
    [
        ({}, None, True),
        ({"README.md": b"x"}, None, False),
        ({"README.md": b"x"}, {}, False),
        ({"README.md": b"x"}, {"README.md": b"x"}, True),
        ({"README.md": b"edited"}, {"README.md": b"x"}, False),
    ],
)
def test_a_readme_is_ours_only_while_it_is_what_our_record_says(
    tree: dict[str, bytes], record: dict[str, bytes] | None, answer: bool
) -> None:
    assert ours(state(tree, record)) is answer


@pytest.mark.parametrize("release", [{}, {"files": []}, {"files": {"README.md": 3}}, {"x": 1}])
def test_a_record_of_another_shape_owns_nothing(release: dict[str, object]) -> None:
    files = {"README.md": listed("README.md", b"x")}
    remote = RemoteState("o/n", "model", True, head="1" * 40, files=files, release=release)
    assert not ours(remote)
    assert diff_files(remote, []).delete == ()
