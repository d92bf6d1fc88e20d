"""Damaged inputs and bad places: a clear error, and nothing that looks like a checkpoint."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from our_merge import merged, no_processes
from zoo import Zoo

from hubtools.errors import HubtoolsError

INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module", autouse=True)
def _here() -> Any:
    with no_processes():
        yield


@pytest.fixture
def pair(zoo: Zoo, tmp_path: Path) -> tuple[Path, Path]:
    """A copy of a sharded (base, adapter) to damage."""
    base, adapter = zoo.pair("llama", "plain", shard="60KB")
    return (
        Path(shutil.copytree(base, tmp_path / "base")),
        Path(shutil.copytree(adapter, tmp_path / "adapter")),
    )


def refused(pair: tuple[Path, Path], *ids: str) -> HubtoolsError:
    """The merge fails with one of these ids, names place and fix, and leaves nothing."""
    base, adapter = pair
    out = base.with_name("out")
    with pytest.raises(HubtoolsError) as caught:
        merged(base, adapter, out)
    assert caught.value.id in ids, caught.value
    assert caught.value.where
    assert caught.value.next
    assert_nothing_left(out)
    return caught.value


def assert_nothing_left(out: Path) -> None:
    """No output, and no weight file in the place where it was made."""
    assert not out.exists()
    assert list(out.with_name(f".{out.name}.merge").rglob("*.safetensors")) == []


def shards(base: Path) -> list[Path]:
    return sorted(base.glob("*.safetensors"))


@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("keep", [0, 7, 8, 100, -4096, -1])
def test_a_truncated_shard(pair: tuple[Path, Path], which: int, keep: int) -> None:
    file = shards(pair[0])[which]
    data = file.read_bytes()
    file.write_bytes(data[:keep])
    error = refused(pair, "HT104")
    assert error.where == str(file)


@pytest.mark.parametrize("keep", [0, 7, 443, -1])
def test_a_truncated_adapter(pair: tuple[Path, Path], keep: int) -> None:
    file = pair[1] / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    assert refused(pair, "HT104").where == str(file)


def test_a_shard_that_is_missing(pair: tuple[Path, Path]) -> None:
    shards(pair[0])[1].unlink()
    assert shards(pair[0])[0].name not in str(refused(pair, "HT105").detail)


def test_a_shard_that_was_exchanged_for_another(pair: tuple[Path, Path]) -> None:
    first, second, *_ = shards(pair[0])
    second.write_bytes(first.read_bytes())
    refused(pair, "HT105")


def header_of(file: Path) -> tuple[dict[str, Any], bytes]:
    data = file.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    fields: dict[str, Any] = json.loads(data[8:end])
    return fields, data[end:]


def write_header(file: Path, text: bytes, data: bytes) -> None:
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)


def _tensor(fields: dict[str, Any], number: int = 0) -> dict[str, Any]:
    tensor: dict[str, Any] = fields[[name for name in fields if name != "__metadata__"][number]]
    return tensor


def _overlap(fields: dict[str, Any]) -> None:
    first, second = _tensor(fields), _tensor(fields, 1)
    second["data_offsets"] = [first["data_offsets"][0], first["data_offsets"][0] + 2]
    second["shape"] = [1]


def _past_the_end(fields: dict[str, Any]) -> None:
    last = max(
        (value for name, value in fields.items() if name != "__metadata__"),
        key=lambda value: value["data_offsets"][1],
    )
    last["data_offsets"][1] += 1 << 40
    last["shape"] = [(last["data_offsets"][1] - last["data_offsets"][0]) // 4]


LIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "overlap": _overlap,
    "past the end": _past_the_end,
    "negative size": lambda fields: _tensor(fields).update(shape=[-1, -64]),
    "negative offset": lambda fields: _tensor(fields).update(data_offsets=[-8, 0]),
    "a size beyond 64 bits": lambda fields: _tensor(fields).update(shape=[2**62, 2**62, 2**62]),
    "fractions": lambda fields: _tensor(fields).update(data_offsets=[0.0, 8.0]),
    "another dtype": lambda fields: _tensor(fields).update(dtype="F64"),
    "an unknown dtype": lambda fields: _tensor(fields).update(dtype="Q4"),
    "dtype is a list": lambda fields: _tensor(fields).update(dtype=["F32"]),
    "no shape": lambda fields: _tensor(fields).pop("shape"),
    "no tensors for the data": lambda fields: fields.clear(),
}


@pytest.mark.parametrize("side", ["base", "adapter"])
@pytest.mark.parametrize("lie", LIES)
def test_a_header_that_lies(pair: tuple[Path, Path], lie: str, side: str) -> None:
    base, adapter = pair
    file = shards(base)[1] if side == "base" else adapter / "adapter_model.safetensors"
    fields, data = header_of(file)
    LIES[lie](fields)
    write_header(file, json.dumps(fields).encode(), data)
    assert refused(pair, "HT104").where == str(file)


@pytest.mark.parametrize("side", ["base", "adapter"])
def test_a_name_that_is_there_twice(pair: tuple[Path, Path], side: str) -> None:
    base, adapter = pair
    file = shards(base)[0] if side == "base" else adapter / "adapter_model.safetensors"
    fields, data = header_of(file)
    names = [name for name in fields if name != "__metadata__"]
    text = json.dumps(fields).replace(json.dumps(names[1]), json.dumps(names[0]), 1)
    write_header(file, text.encode(), data)
    assert "twice" in refused(pair, "HT104").detail[0]


@pytest.mark.parametrize("length", [100_000_001, 99_999_999, 2**63, 2**64 - 1])
def test_a_header_of_hundred_megabytes(pair: tuple[Path, Path], length: int) -> None:
    file = shards(pair[0])[0]
    with file.open("wb") as stream:
        stream.write(length.to_bytes(8, "little"))
        stream.truncate(120_000_000)  # a hole, not 120 MB
    refused(pair, "HT104")


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json"])
def test_a_pipe_is_no_file_to_wait_for(pair: tuple[Path, Path], name: str) -> None:
    (pair[1] / name).unlink()
    os.mkfifo(pair[1] / name)
    refused(pair, "HT101", "HT102", "HT104", "HT106", "HT112")


def test_a_shard_that_is_a_pipe(pair: tuple[Path, Path]) -> None:
    file = shards(pair[0])[0]
    file.unlink()
    os.mkfifo(file)
    refused(pair, "HT104", "HT105")


@pytest.mark.parametrize(
    ("side", "name"),
    [("base", "config.json"), ("base", INDEX), ("adapter", "adapter_config.json")],
)
@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{", b"\xff{}", b"null", b'{"a": 1e999}' + b"[" * 99]
)
def test_a_configuration_that_is_none(
    pair: tuple[Path, Path], side: str, name: str, text: bytes
) -> None:
    folder = pair[0] if side == "base" else pair[1]
    (folder / name).write_bytes(text)
    refused(pair, "HT105", "HT106")


def test_files_of_a_download_cache_are_links(zoo: Zoo, tmp_path: Path) -> None:
    """snapshots/<commit>/… point into blobs/; the output holds files, and the blobs stay."""
    original, adapter = zoo.pair("llama", "plain", shard="60KB")
    blobs, base = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    shutil.copytree(original, blobs)
    base.mkdir(parents=True)
    for file in blobs.iterdir():
        (base / file.name).symlink_to(Path("../../blobs") / file.name)
    before = {file: file.read_bytes() for file in blobs.iterdir()}
    plain, _ = merged(original, adapter, tmp_path / "plain")
    linked, _ = merged(base, adapter, tmp_path / "out")
    assert plain.keys() == linked.keys()
    assert not any(file.is_symlink() for file in (tmp_path / "out").iterdir())
    assert {file: file.read_bytes() for file in blobs.iterdir()} == before


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a file system of so many megabytes."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(size: int) -> Path:
        argv = ["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", str(place)]
        if subprocess.run(argv, capture_output=True).returncode != 0:
            pytest.skip("mounting needs root")
        return place

    yield mount
    subprocess.run(["umount", str(place)], capture_output=True)


def test_a_read_only_place(zoo: Zoo, small_disk: Callable[[int], Path]) -> None:
    disk = small_disk(1)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    base, adapter = zoo.pair("llama", "plain")
    with pytest.raises(HubtoolsError, match=r"HT901.*read-only"):
        merged(base, adapter, disk / "out")
    assert list(disk.iterdir()) == []


def test_no_permission_for_the_place(zoo: Zoo, tmp_path: Path) -> None:
    base, adapter = zoo.pair("llama", "plain")
    with pytest.raises(HubtoolsError, match="HT901"):
        merged(base, adapter, Path("/proc/out"))


def test_a_disk_that_fills_up_meanwhile(
    zoo: Zoo, tmp_path: Path, small_disk: Callable[[int], Path]
) -> None:
    """There was room when the merge began; another program took it."""
    from hubtools.checkpoint.merging.merge import merge

    base, adapter = zoo.pair("llama", "save norm", vocab_size=120_000)
    disk = small_disk(130)

    def fill(label: str, done: int, total: int | None, unit: str) -> None:
        with suppress(OSError), (disk / "other").open("ab", buffering=0) as stream:
            while True:
                stream.write(bytes(1 << 20))

    with pytest.raises(HubtoolsError, match=r"HT901.*disk full"):
        merge([adapter], base, disk / "out", log=tmp_path / "log", progress=fill)
    assert_nothing_left(disk / "out")
    (disk / "other").unlink()
    again, _ = merged(base, adapter, disk / "out")
    elsewhere, _ = merged(base, adapter, tmp_path / "elsewhere")
    assert again.keys() == elsewhere.keys()
    assert (disk / "out" / "model.safetensors").read_bytes() == (
        tmp_path / "elsewhere" / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("side", ["base", "adapter"])
@pytest.mark.parametrize("change", ["bytes", "size", "replaced", "gone"])
def test_an_input_that_changes_during_the_merge(
    zoo: Zoo, tmp_path: Path, side: str, change: str
) -> None:
    from hubtools.checkpoint.merging.merge import merge

    sources = zoo.pair("llama", "save norm", vocab_size=120_000)
    base, adapter = (
        Path(shutil.copytree(source, tmp_path / name))
        for source, name in zip(sources, ("base", "adapter"), strict=True)
    )
    file = base / "model.safetensors" if side == "base" else adapter / "adapter_model.safetensors"
    calls = []

    def disturb(label: str, done: int, total: int | None, unit: str) -> None:
        calls.append(done)
        if len(calls) > 1:
            return
        if change == "gone":
            file.unlink()
        elif change == "replaced":
            copy = file.with_name("copy")
            copy.write_bytes(file.read_bytes())
            copy.replace(file)
        else:
            with file.open("r+b") as stream:
                stream.seek(-1, os.SEEK_END)
                stream.write(b"\x01" if change == "bytes" else b"\x01\x02")

    with pytest.raises(HubtoolsError) as caught:
        merge([adapter], base, tmp_path / "out", log=tmp_path / "log", progress=disturb)
    assert calls
    assert file.name in caught.value.where
    assert caught.value.next
    assert_nothing_left(tmp_path / "out")
