"""Killed, out of space or started twice: the output is whole or absent; the next run makes it."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tiny_models import save_adapter, save_base

from hubtools.checkpoint.merging.merge import merge
from hubtools.checkpoint.stream import HashedFile
from hubtools.digests import sha256_bytes, sha256_file
from hubtools.errors import EnvironmentFailure
from hubtools.files import locked

SCRIPT = """
import sys
from pathlib import Path
from hubtools.checkpoint.merging.merge import merge
adapter, base, out = map(Path, sys.argv[1:])
merge(adapter, base, out, log=out.with_name("log"))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(base, adapter) with 61 MB of weights, half of them changed by the merge."""
    root = tmp_path_factory.mktemp("large")
    base = save_base(root / "base", "llama", "bfloat16", sizes={"vocab_size": 240_000})
    return base, save_adapter(root / "adapter", base, ["q_proj", "lm_head"], r=2)


def started(pair: tuple[Path, Path], out: Path, **options: Any) -> subprocess.Popen[bytes]:
    base, adapter = pair
    argv = [sys.executable, "-c", SCRIPT, str(adapter), str(base), str(out)]
    return subprocess.Popen(argv, stderr=subprocess.PIPE, start_new_session=True, **options)


def test_killed_anywhere(large: tuple[Path, Path], tmp_path: Path) -> None:
    base, adapter = large
    undisturbed = merge(adapter, base, tmp_path / "undisturbed", log=tmp_path / "log")
    out = tmp_path / "out"
    partial = tmp_path / ".out.merge" / "files" / "model.safetensors"
    size = undisturbed["files"]["model.safetensors"]["size"]
    chance = random.Random(5)
    seen = 0
    for _ in range(6):
        target = chance.randrange(1, size)
        child = started(large, out)
        while child.poll() is None:
            if partial.exists() and partial.stat().st_size >= target:
                seen += 1
                break
            time.sleep(0.0005)
        os.killpg(child.pid, signal.SIGKILL) if child.poll() is None else None
        child.communicate()
        assert not out.exists() or sha256_file(out / "model.safetensors")
        if out.exists():
            assert merge(adapter, base, out, log=tmp_path / "log") == undisturbed
    assert seen > 0
    (tmp_path / ".out.merge" / ".journal.json.1.tmp").write_text("torn")
    assert merge(adapter, base, out, log=tmp_path / "log") == undisturbed
    assert sorted(os.listdir(tmp_path / ".out.merge")) == ["job.json", "lock"]


def test_a_dead_child_is_an_error_with_its_log(large: tuple[Path, Path], tmp_path: Path) -> None:
    base, adapter = large

    def kill(label: str, done: int, total: int | None, unit: str) -> None:
        found = subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True)
        for pid in found.stdout.split():
            line = Path(f"/proc/{pid}/cmdline")
            if line.exists() and b"merging.child" in line.read_bytes():
                os.kill(int(pid), signal.SIGKILL)

    with pytest.raises(EnvironmentFailure, match="HT904") as caught:
        merge(adapter, base, tmp_path / "out", log=tmp_path / "log", progress=kill)
    assert "SIGKILL" in caught.value.message
    assert sorted(os.listdir(tmp_path)) == [".out.merge", "log"]
    assert os.listdir(tmp_path / ".out.merge") == ["lock"]


def test_a_limit_on_file_size(large: tuple[Path, Path], tmp_path: Path) -> None:
    limit = 20 << 20

    def cap() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    child = started(large, tmp_path / "out", preexec_fn=cap)
    story = child.communicate()[1].decode()
    assert "[HT901] cannot write: file size limit reached" in story
    assert os.listdir(tmp_path / ".out.merge") == ["lock"]
    assert not (tmp_path / "out").exists()


def test_memory_does_not_grow_with_the_model(
    large: tuple[Path, Path], made: Any, tmp_path: Path
) -> None:
    peaks = []
    for pair, name in ((made(), "small"), (large, "large")):
        child = started(pair, tmp_path / name)
        assert child.stderr is not None
        child.stderr.close()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0
        peaks.append(used.ru_maxrss / 1024)
    assert peaks[1] - peaks[0] < 24, peaks


def write(path: Path, data: bytes) -> str:
    """Write with `HashedFile`, in pieces that fit no block."""
    with HashedFile(path, 1_000_003) as file:
        for start in range(0, len(data), 1_000_003):
            piece = data[start : start + 1_000_003]
            buffer = file.buffer()
            memoryview(buffer.data)[: len(piece)] = piece
            file.send(buffer, len(piece))
        return file.finish()


@pytest.fixture
def full_disk(tmp_path: Path) -> Any:
    """A file system of 6 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", place], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("mounting needs root")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk(full_disk: Path, large: tuple[Path, Path]) -> None:
    base, adapter = large
    with pytest.raises(EnvironmentFailure, match="HT902"):
        merge(adapter, base, full_disk / "out", log=full_disk / "log")
    with pytest.raises(EnvironmentFailure) as caught:
        write(full_disk / "f", bytes(16 << 20))
    assert caught.value.message == "cannot write: disk full"


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, (4 << 20) - 1, 4 << 20, (8 << 20) + 5])
def test_every_size_is_written_and_hashed(tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert write(tmp_path / "f", data) == sha256_bytes(data)
    assert (tmp_path / "f").read_bytes() == data


def test_two_at_once(made: Any, tmp_path: Path) -> None:
    base, adapter = made()
    with (
        locked(tmp_path / ".out.merge" / "lock", "out"),
        pytest.raises(EnvironmentFailure, match=r"HT903.* in use by pid"),
    ):
        merge(adapter, base, tmp_path / "out", log=tmp_path / "log")
    merge(adapter, base, tmp_path / "out", log=tmp_path / "log")


def test_a_place_that_cannot_be_written(made: Any, tmp_path: Path) -> None:
    base, adapter = made()
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFailure, match="HT901"):
        merge(adapter, base, tmp_path / "file" / "out", log=tmp_path / "log")
