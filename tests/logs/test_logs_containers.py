"""Files and lines: patterns that stay at home, packed files, damage, endless lines."""

import bz2
import gzip
import io
import lzma
import random
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hubtools.errors import EnvironmentFailure, UsageError
from hubtools.logs import containers
from hubtools.logs.containers import DamagedLogError, expand, open_lines


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def small_bz2(data: bytes) -> bytes:
    """In small blocks: of a block that is cut off nothing comes back."""
    return bz2.compress(data, compresslevel=1)


def reads_when_joined(error: UsageError) -> bool:
    """A release puts message and details on one line with `; ` between: no new sentence there."""
    told = [error.message, *error.detail]
    return not any(part.endswith(".") or part[0].isupper() for part in told)


SKIPPED_FRAME = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"

PACKINGS = {
    "plain": lambda a, b: a + b,
    "gzip": lambda a, b: gzip.compress(a + b),
    "gzip members": lambda a, b: gzip.compress(a) + gzip.compress(b),
    "zstd": lambda a, b: zstd(a + b),
    "zstd frames": lambda a, b: zstd(a) + zstd(b),
    "xz streams": lambda a, b: lzma.compress(a) + bytes(8) + lzma.compress(b),
    "bzip2 streams": lambda a, b: bz2.compress(a) + bz2.compress(b),
    "gzip of xz of zstd": lambda a, b: gzip.compress(lzma.compress(zstd(a + b))),
    "zstd after a frame to skip": lambda a, b: SKIPPED_FRAME + zstd(a + b),
}


@pytest.mark.parametrize("packing", PACKINGS)
@given(first=st.binary(max_size=300), second=st.binary(max_size=300))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_lines_come_back_from_every_packing(
    tmp_path: Path, packing: str, first: bytes, second: bytes
) -> None:
    data = b"{" + first + second  # no magic bytes of a packing in front
    path = tmp_path / "log"
    path.write_bytes(PACKINGS[packing](b"{" + first, second))
    found = list(open_lines(path))
    assert [line for _, line in found] == io.BytesIO(data).readlines()
    assert [number for number, _ in found] == list(range(1, len(found) + 1))


def test_a_large_file_crosses_every_buffer(tmp_path: Path) -> None:
    expected = [b"%07d " % n + b"x" * (n % 977) + b"\n" for n in range(9000)]
    for name, packing in PACKINGS.items():
        path = tmp_path / "log"
        path.write_bytes(packing(b"".join(expected[:4000]), b"".join(expected[4000:])))
        assert [line for _, line in open_lines(path)] == expected, name


@pytest.mark.parametrize("pack", [gzip.compress, zstd, lzma.compress, small_bz2])
def test_lines_before_a_cut_are_kept_and_the_cut_is_told(tmp_path: Path, pack) -> None:
    noise = random.Random(1)
    data = b"".join(b"%d\n" % noise.getrandbits(400) for _ in range(3000))
    packed = pack(data)
    path = tmp_path / "log"
    path.write_bytes(packed[: len(packed) * 2 // 3])
    found: list[bytes] = []
    reading = (found.append(line) for _, line in open_lines(path))
    with pytest.raises(DamagedLogError, match="cut off"):
        all(kept is None for kept in reading)
    assert len(found) > 100
    assert data.startswith(b"".join(found))


@pytest.mark.parametrize("pack", [gzip.compress, zstd, lzma.compress, bz2.compress])
def test_flipped_bytes_are_damage_not_a_crash(tmp_path: Path, pack) -> None:
    packed = bytearray(pack(bytes(range(256)) * 400))
    for place in range(8, min(len(packed), 60)):
        packed[place] ^= 0xFF
    path = tmp_path / "log"
    path.write_bytes(packed)
    with pytest.raises(DamagedLogError, match="damaged"):
        list(open_lines(path))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd, lzma.compress, bz2.compress])
def test_an_endless_line_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack) -> None:
    monkeypatch.setattr(containers, "MAX_LINE", 1000)
    path = tmp_path / "log"
    path.write_bytes(pack(b"a\n" + b"x" * 5_000_000 + b"\nb\n"))
    assert [(n, len(line)) for n, line in open_lines(path)] == [(1, 2), (2, 1001), (3, 2)]


def test_what_is_packed_too_often_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(gzip.compress(gzip.compress(b"a\n"))))
    assert [line for _, line in open_lines(path)] == [b"a\n"]
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(DamagedLogError, match="more than 3 times"):
        list(open_lines(path))


def test_a_bomb_stays_small_in_memory(tmp_path: Path) -> None:
    bomb = zstd(b"\0" * (1 << 30))
    path = tmp_path / "log"
    path.write_bytes(bomb)
    tracemalloc.start()
    ((number, line),) = open_lines(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (number, len(line)) == (1, containers.MAX_LINE + 1)
    assert len(bomb) < 200_000
    assert peak < 6 * containers.MAX_LINE


def test_patterns_are_sorted_and_each_file_comes_once(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a/2.jsonl.gz", "a/1.ndjson", "a/notes.txt", "odd[1].jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"{}\n")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "b.jsonl")

    def names(*patterns: str) -> list[str]:
        return [path.relative_to(tmp_path).as_posix() for path in expand(patterns, tmp_path)]

    assert names("**/*.jsonl*", "b.jsonl") == ["a/2.jsonl.gz", "b.jsonl", "odd[1].jsonl"]
    assert names("a") == ["a/1.ndjson", "a/2.jsonl.gz"]
    assert names("a/notes.txt") == ["a/notes.txt"]
    assert names("odd[1].jsonl") == ["odd[1].jsonl"]
    assert names(str(tmp_path / "a" / "*.ndjson")) == ["a/1.ndjson"]


def test_a_directory_gives_every_kind_of_log(tmp_path: Path) -> None:
    kept = ["a.eval", "b.har", "c.json.xz", "d.yaml", "e.tar.gz", "f.traj", "g.jsonl.bz2"]
    for name in (*kept, "model.safetensors", "notes.md", "run.py"):
        (tmp_path / name).touch()
    assert [path.name for path in expand(["."], tmp_path)] == kept


def test_a_pattern_without_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        expand(["*.jsonl"], tmp_path)
    assert error.value.id == "HT201"
    assert reads_when_joined(error.value)
    assert "'*.jsonl'" in error.value.message


def test_relative_patterns_cannot_leave_the_project(tmp_path: Path) -> None:
    outside = tmp_path / "outside.jsonl"
    outside.write_bytes(b"{}\n")
    home = tmp_path / "home"
    home.mkdir()
    (home / "link.jsonl").symlink_to(outside)
    for pattern in ("../outside.jsonl", "../*.jsonl", "link.jsonl", "*.jsonl", ".."):
        with pytest.raises(UsageError) as error:
            expand([pattern], home)
        assert error.value.id == "HT202", pattern
        assert reads_when_joined(error.value)
    assert expand([str(outside)], home) == [outside]


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure) as error:
        list(open_lines(tmp_path / "gone.jsonl"))
    assert error.value.id == "HT203"
    assert "gone.jsonl" in error.value.where
