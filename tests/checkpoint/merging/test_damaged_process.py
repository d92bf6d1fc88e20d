"""Real processes killed at any moment, or started twice: whole or absent, and the same bytes."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from zoo import Zoo

from hubtools.digests import sha256_file

SCRIPT = """
import json, sys
from pathlib import Path
from hubtools.checkpoint.merging.merge import merge
from hubtools.errors import HubtoolsError
base, adapter, out = map(Path, sys.argv[1:])
try:
    result = merge([adapter], base, out, log=out.with_name(f"log-{out.name}"))
except HubtoolsError as error:
    print(error.id)
else:
    print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def large(zoo: Zoo) -> tuple[Path, Path]:
    """(base, adapter) of 62 MB in a dozen shards."""
    sizes = {"intermediate_size": 20_000, "num_hidden_layers": 8}
    return zoo.pair("llama", "plain", shard="6MB", **sizes)


def started(pair: tuple[Path, Path], out: Path) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", SCRIPT, *map(str, (*pair, out))]
    return subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def digests(out: Path) -> dict[str, str]:
    return {file.name: sha256_file(file) for file in sorted(out.iterdir())}


@pytest.fixture(scope="module")
def timed(large: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """What a merge left alone makes, and in how many seconds."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    begin = time.perf_counter()
    story = started(large, out).communicate()
    assert json.loads(story[0])["weights"], story
    return out, time.perf_counter() - begin


@pytest.fixture(scope="module")
def undisturbed(timed: tuple[Path, float]) -> Path:
    return timed[0]


def kill(child: subprocess.Popen[bytes]) -> bool:
    """Kill parent and child at once; whether there was something to kill."""
    alive = child.poll() is None
    if alive:
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    return alive


def test_killed_at_random_moments(
    large: tuple[Path, Path], timed: tuple[Path, float], tmp_path: Path
) -> None:
    undisturbed, seconds = timed
    wanted = digests(undisturbed)
    out, chance, writing = tmp_path / "out", random.Random(11), 0
    for _ in range(15):
        child = started(large, out)
        time.sleep(chance.uniform(0.05, seconds))  # a busy machine takes longer to get there
        begun = (tmp_path / ".out.merge" / "files").exists()
        writing += kill(child) and begun
        if out.exists():  # whole, since it is there
            assert digests(out) == wanted
            shutil.rmtree(out)
    assert writing
    assert started(large, out).communicate()[0].startswith(b"{")
    assert digests(out) == wanted
    assert list((tmp_path / ".out.merge").rglob("*.safetensors")) == []


def test_shards_that_were_finished_are_kept(
    large: tuple[Path, Path], undisturbed: Path, tmp_path: Path
) -> None:
    out, files = tmp_path / "out", tmp_path / ".out.merge" / "files"
    child = started(large, out)
    while child.poll() is None:
        done = sorted(files.glob("model-*.safetensors"))
        if len(done) >= 3:
            break
        time.sleep(0.001)
    assert kill(child), "it was over too soon"
    kept = {file.name: file.stat().st_ino for file in files.glob("model-*.safetensors")}
    assert len(kept) >= 3
    assert started(large, out).communicate()[0].startswith(b"{")
    assert digests(out) == digests(undisturbed)
    again = [name for name, inode in kept.items() if (out / name).stat().st_ino != inode]
    assert len(again) <= 1  # the last may have been renamed and not yet noted down


def test_a_finished_shard_that_was_damaged_since_is_made_again(
    large: tuple[Path, Path], undisturbed: Path, tmp_path: Path
) -> None:
    out, files = tmp_path / "out", tmp_path / ".out.merge" / "files"
    child = started(large, out)
    while child.poll() is None and len(list(files.glob("model-*.safetensors"))) < 3:
        time.sleep(0.001)
    assert kill(child), "it was over too soon"
    for file in files.glob("model-*.safetensors"):
        stamp = file.stat()
        with file.open("r+b") as stream:
            stream.seek(-1, os.SEEK_END)
            last = stream.read(1)[0]
            stream.seek(-1, os.SEEK_END)
            stream.write(bytes([last ^ 1]))
        os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert started(large, out).communicate()[0].startswith(b"{")
    assert digests(out) == digests(undisturbed)


def test_two_merges_into_one_directory(
    large: tuple[Path, Path], undisturbed: Path, tmp_path: Path
) -> None:
    children = [started(large, tmp_path / "out") for _ in range(3)]
    answers = [child.communicate()[0].decode().strip() for child in children]
    made = [answer for answer in answers if answer.startswith("{")]
    assert made
    assert {answer for answer in answers if answer not in made} <= {"HT903"}
    assert digests(tmp_path / "out") == digests(undisturbed)


def test_merges_side_by_side_do_not_meet(
    large: tuple[Path, Path], undisturbed: Path, tmp_path: Path
) -> None:
    children = [started(large, tmp_path / name) for name in ("one", "two")]
    for child in children:
        assert child.communicate()[0].startswith(b"{")
    for name in ("one", "two"):
        assert digests(tmp_path / name) == digests(undisturbed)


def test_the_index_names_every_tensor_where_it_is(undisturbed: Path) -> None:
    from hubtools.checkpoint.shards import read_weights

    found = read_weights(undisturbed)
    assert len(found.headers) > 5
    assert found.index is not None
    assert found.index["metadata"]["total_size"] == found.tensor_bytes()
