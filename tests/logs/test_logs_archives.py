"""Archives: every member is read in turn, none is written, and none can exhaust the machine."""

import io
import json
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_lines import lines, pair, response
from log_samples import INSPECT

from hubtools.logs import archives
from hubtools.logs.read import read_log
from hubtools.logs.records import BadLine, Record

FILES = {"b/2.jsonl": lines(pair(response("r2"))), "a.json": json.dumps(response("r1")).encode()}


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def zipped_zstd(files: dict[str, bytes]) -> bytes:
    """A zip archive as newer loggers write it: members compressed with method 93."""
    packed = {name: zstandard.compress(data) for name, data in files.items()}
    raw = bytearray(zipped_stored(packed))
    for signature, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        at = raw.find(signature)
        while at >= 0:
            raw[at + place : at + place + 2] = (93).to_bytes(2, "little")
            at = raw.find(signature, at + 4)
    return bytes(raw)


def zipped_stored(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def tarred(files: dict[str, bytes], mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


PACKERS = {
    "zip": zipped,
    "zip of zstd": zipped_zstd,
    "tar": tarred,
    "tar.gz": lambda files: tarred(files, "w:gz"),
    "tar.xz": lambda files: tarred(files, "w:xz"),
    "tar.bz2": lambda files: tarred(files, "w:bz2"),
    "tar.zst": lambda files: zstandard.compress(tarred(files)),
}


def read(tmp_path: Path, data: bytes) -> list[Record | BadLine]:
    (tmp_path / "log").write_bytes(data)
    return list(read_log(tmp_path / "log", "log"))


@pytest.mark.parametrize("packer", PACKERS)
def test_members_are_read_in_turn(tmp_path: Path, packer: str) -> None:
    found = read(tmp_path, PACKERS[packer](FILES))
    places = {(item.file, item.line, item.id) for item in found if isinstance(item, Record)}
    assert places == {("log/a.json", 1, "r1"), ("log/b/2.jsonl", 1, "r2")}
    if packer.startswith("zip"):
        assert [item.file for item in found] == ["log/a.json", "log/b/2.jsonl"]


@pytest.mark.parametrize("packer", [zipped, zipped_zstd])
def test_of_inspects_archives_only_the_samples_count(tmp_path: Path, packer) -> None:
    sample = json.dumps(INSPECT, indent=1).encode()
    found = read(
        tmp_path,
        packer({"header.json": b"{}", "samples/1_epoch_1.json": sample, "summaries.json": b"[]"}),
    )
    assert [item.file for item in found] == ["log/samples/1_epoch_1.json"] * 2
    assert [item.line for item in found] != [1, 1]


def test_names_stay_below_the_archive(tmp_path: Path) -> None:
    for packer in (zipped, tarred):
        files = {"../../etc/a": FILES["a.json"], "/b": FILES["a.json"], "c\x1b[2J": b"{}"}
        names = sorted(item.file for item in read(tmp_path, packer(files)))
        assert names == ["log/b", "log/c?[2J", "log/etc/a"]
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_links_and_folders_are_no_logs(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind in (("folder", tarfile.DIRTYPE), ("pipe", tarfile.FIFOTYPE)):
            info = tarfile.TarInfo(name)
            info.type = kind
            archive.addfile(info)
    assert read(tmp_path, out.getvalue()) == []


@pytest.mark.parametrize("packer", PACKERS)
def test_a_bomb_is_told_not_unpacked(
    tmp_path: Path, packer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "_FREE", 1 << 20)
    monkeypatch.setattr(archives, "MAX_RATIO", 2)
    data = PACKERS[packer]({"bomb": b"\0" * (8 << 20), "good.jsonl": FILES["b/2.jsonl"]})
    if packer == "tar":
        assert isinstance(read(tmp_path, data)[-1], Record)  # it is as large as what it holds
        return
    tracemalloc.start()
    (found,) = read(tmp_path, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(found, BadLine)
    assert (found.file, found.kind) == ("log/bomb", "damaged")
    assert "times its size" in found.detail
    assert peak < 64 << 20


def test_too_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_MEMBERS", 1)
    for packer in PACKERS.values():
        assert read(tmp_path, packer(FILES))[-1].kind == "damaged"


def test_an_archive_in_an_archive_is_told(tmp_path: Path) -> None:
    for outer in (zipped, tarred):
        (found,) = read(tmp_path, outer({"inner.zip": zipped(FILES)}))
        assert isinstance(found, BadLine)
        assert (found.file, found.kind) == ("log/inner.zip", "damaged")


@pytest.mark.parametrize("packer", PACKERS)
@given(data=st.data())
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_damaged_archive_crashes(tmp_path: Path, packer: str, data: st.DataObject) -> None:
    raw = bytearray(PACKERS[packer](FILES))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(4, len(raw)))
    for item in read(tmp_path, bytes(raw[:cut])):
        assert isinstance(item, Record | BadLine)
        assert isinstance(item, Record) or item.kind != "reader failed"
