"""The object store keeps what its names promise."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hubtools.localhub.objects import ObjectError, ObjectStore


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=5000), max_size=5))
def test_pieces_come_back_under_their_digest(tmp_path: Path, pieces: list[bytes]) -> None:
    store = ObjectStore(tmp_path)
    writer = store.begin()
    for piece in pieces:
        writer.write(piece)
    name = writer.finish(None)
    whole = b"".join(pieces)
    assert name == hashlib.sha256(whole).hexdigest()
    assert store.path(name).read_bytes() == whole
    assert store.size(name) == len(whole)
    store.check(name)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_false_name_leaves_nothing(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    writer = store.begin()
    writer.write(b"these bytes")
    with pytest.raises(ObjectError, match=r"expected sha256 00.* received"):
        writer.finish("0" * 64)
    path = store.scratch("parts")
    path.write_bytes(b"those")
    with pytest.raises(ObjectError):
        store.adopt(path, "0" * 64)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_check_sees_a_changed_byte(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    name = store.put(b"weights")
    store.path(name).write_bytes(b"weightz")
    with pytest.raises(ObjectError, match="holds bytes with sha256"):
        store.check(name)
    with pytest.raises(ObjectError, match="never uploaded"):
        store.check("1" * 64)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_only_digests_are_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(ObjectError, match="not a sha256"):
        ObjectStore(tmp_path).path(name)


@pytest.mark.parametrize("way", ["put", "adopt"])
def test_bytes_and_names_are_flushed_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    flushed: list[int] = []
    really = os.fsync

    def recording(descriptor: int) -> None:
        flushed.append(os.fstat(descriptor).st_ino)
        really(descriptor)

    monkeypatch.setattr(os, "fsync", recording)
    store = ObjectStore(tmp_path)
    name = hashlib.sha256(b"data").hexdigest()
    if way == "put":
        store.put(b"data")
    else:
        store.scratch("x").write_bytes(b"data")
        store.adopt(store.scratch("x"), name)
    path = store.path(name)
    folders = [path.parent, path.parent.parent, path.parent.parent.parent]
    assert {place.stat().st_ino for place in (path, *folders)} <= set(flushed)
    assert flushed[0] == path.stat().st_ino  # before any name leads to it
