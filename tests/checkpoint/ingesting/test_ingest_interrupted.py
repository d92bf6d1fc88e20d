"""Killed, out of space, started twice, a run being written: whole or absent, then finished."""

from __future__ import annotations

import json
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
import torch
from same_tensors import same
from tiny_models import config_of

from hubtools.checkpoint.ingesting import plan as plans
from hubtools.checkpoint.ingesting.ingest import ingest
from hubtools.errors import CheckError, EnvironmentFailure
from hubtools.files import locked

SCRIPT = """
import sys
from pathlib import Path
from hubtools.checkpoint.ingesting.ingest import ingest
run, base, out = map(Path, sys.argv[1:])
ingest(run, out, base=base, dtype="bfloat16", log=out.with_name("log"))
"""
# The child cuts shards at 5 GB; here it must have several.
SITE = "import hubtools.checkpoint.ingesting.plan as plan\nplan.SHARD_BYTES = 16_000_000\n"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(run, base): 123 MB of float32 in one rank file, written as three shards."""
    from transformers import AutoModelForCausalLM

    root = tmp_path_factory.mktemp("large")
    config = config_of("llama", sizes={"vocab_size": 240_000})
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    actor = root / "run" / "global_step_2" / "actor"
    (actor / "huggingface").mkdir(parents=True)
    torch.save(model.state_dict(), actor / "model_world_size_1_rank_0.pt")
    model.to(torch.bfloat16).save_pretrained(root / "base")
    config = json.loads((root / "base" / "config.json").read_text())
    (actor / "huggingface" / "config.json").write_text(json.dumps(config))
    return root / "run", root / "base"


@pytest.fixture(scope="module")
def small_shards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which a child makes small shards."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "sitecustomize.py").write_text(SITE)
    return {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}


def started(pair: tuple[Path, Path], out: Path, **options: Any) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", SCRIPT, *map(str, pair), str(out)]
    return subprocess.Popen(argv, stderr=subprocess.PIPE, start_new_session=True, **options)


def finished(folder: Path) -> list[str]:
    """Names of the shards that a killed run had finished."""
    try:
        return list(json.loads((folder / "done.json").read_text())["files"])
    except FileNotFoundError:
        return []


def test_killed_anywhere(
    large: tuple[Path, Path],
    small_shards: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", small_shards["PYTHONPATH"])
    run, base = large
    undisturbed = ingest(run, tmp_path / "calm", base=base, dtype="bfloat16", log=tmp_path / "log")
    assert len(undisturbed["weights"]) == 3
    out, work = tmp_path / "out", tmp_path / ".out.ingest"
    chance = random.Random(3)
    resumed = 0
    for wanted in (0, 1, 2):
        child = started(large, out, env=small_shards)
        size = chance.randrange(1, 8_000_000)
        while child.poll() is None and not (
            len(finished(work)) >= wanted
            and (work / "part").exists()
            and (work / "part").stat().st_size >= size
        ):
            time.sleep(0.0005)
        stamps = {n: (work / "files" / n).stat().st_mtime_ns for n in finished(work)}
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            assert not out.exists()
            resumed += len(stamps)
        child.communicate()
    kept = {name: (work / "files" / name).stat().st_mtime_ns for name in finished(work)}
    assert ingest(run, out, base=base, dtype="bfloat16", log=tmp_path / "log") == undisturbed
    assert resumed > 0
    assert kept == {name: (out / name).stat().st_mtime_ns for name in kept}  # not written again
    assert same(out, tmp_path / "calm")
    assert sorted(os.listdir(work)) == ["job.json", "lock"]


def test_a_finished_shard_that_was_damaged_is_made_again(
    trained: Path, reference: Any, here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "SHARD_BYTES", 60_000)
    first = here(trained / "fsdp1", dtype="bfloat16")
    for damaged in sorted(first["weights"])[:2]:
        file = tmp_path / "out" / damaged
        file.write_bytes(file.read_bytes()[:-3] + b"xyz")
    (tmp_path / "out" / "stray.safetensors").write_text("x")
    assert here(trained / "fsdp1", dtype="bfloat16") == first
    assert same(tmp_path / "out", reference("llama"))
    assert not (tmp_path / "out" / "stray.safetensors").exists()


def test_the_same_job_again_is_checked_and_another_is_refused(
    trained: Path, reference: Any, tmp_path: Path
) -> None:
    out, base = tmp_path / "out", reference("tied")

    def go(**options: Any) -> dict[str, Any]:
        options = {"dtype": "bfloat16", "base": base, "log": tmp_path / "log", **options}
        return ingest(trained / "hsdp2-tied", out, **options)

    first = go()
    stamp = (out / "model.safetensors").stat().st_mtime_ns
    assert go() == first
    assert (out / "model.safetensors").stat().st_mtime_ns == stamp
    with pytest.raises(Exception, match=r"HT120.*already there"):
        go(dtype="float16")
    (out / "config.json").write_text("{}")
    with pytest.raises(Exception, match=r"HT120.*already there"):
        go()


def test_a_run_that_is_still_being_written(
    copied: Any, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hubtools.checkpoint.ingesting.write import Writer

    run = copied("fsdp1")
    file = run / "global_step_7" / "actor" / "model_world_size_4_rank_1.pt"
    write = Writer.write

    def disturbed(self: Writer, *args: Any) -> dict[str, Any]:
        os.utime(file)
        return write(self, *args)

    monkeypatch.setattr(Writer, "write", disturbed)
    with pytest.raises(EnvironmentFailure, match=r"HT118.*changed"):
        here(run, dtype="bfloat16")


def test_a_rank_file_cut_while_it_is_read(
    copied: Any, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hubtools.checkpoint.ingesting.write import Writer

    run = copied("fsdp1")
    file = run / "global_step_7" / "actor" / "model_world_size_4_rank_1.pt"
    write = Writer.write

    def cut(self: Writer, *args: Any) -> dict[str, Any]:
        os.truncate(file, 20_000)
        return write(self, *args)

    monkeypatch.setattr(Writer, "write", cut)
    with pytest.raises(EnvironmentFailure, match="HT118"):
        here(run, dtype="bfloat16")


def test_two_at_once(trained: Path, tmp_path: Path) -> None:
    with (
        locked(tmp_path / ".out.ingest" / "lock", "out"),
        pytest.raises(EnvironmentFailure, match=r"HT903.* in use by pid"),
    ):
        ingest(trained / "fsdp1", tmp_path / "out", dtype="bfloat16", log=tmp_path / "log")


def test_a_place_that_cannot_be_written(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFailure, match="HT901"):
        ingest(trained / "fsdp1", tmp_path / "file" / "out", dtype="bfloat16", log=tmp_path / "log")


def test_a_limit_on_file_size(large: tuple[Path, Path], tmp_path: Path) -> None:
    def cap() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20 << 20, 20 << 20))

    child = started(large, tmp_path / "out", preexec_fn=cap)
    story = child.communicate()[1].decode()
    assert "[HT901] cannot write: file size limit reached" in story
    assert not (tmp_path / "out").exists()
    assert "part" not in os.listdir(tmp_path / ".out.ingest")


def test_a_full_disk(large: tuple[Path, Path], tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)]
    if subprocess.run(argv, capture_output=True).returncode != 0:
        pytest.skip("mounting needs root")
    try:
        with pytest.raises(EnvironmentFailure, match=r"HT902.*128.7 MB needed"):
            ingest(large[0], disk / "out", base=large[1], dtype="bfloat16", log=tmp_path / "log")
        assert not (disk / "out").exists()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_memory_does_not_grow_with_the_model(
    large: tuple[Path, Path], trained: Path, reference: Any, tmp_path: Path
) -> None:
    peaks = []
    for pair, name in (((trained / "fsdp1", reference("llama")), "small"), (large, "large")):
        child = started(pair, tmp_path / name)
        assert child.stderr is not None
        child.stderr.close()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0
        peaks.append(used.ru_maxrss / 1024)
    assert peaks[1] - peaks[0] < 60, peaks  # the run is 123 MB, its largest tensor 61 MB


def test_an_error_leaves_nothing_that_looks_whole(copied: Any, tmp_path: Path) -> None:
    run = copied("fsdp1")
    os.truncate(run / "global_step_7" / "actor" / "model_world_size_4_rank_3.pt", 5000)
    with pytest.raises(CheckError, match="HT168"):
        ingest(run, tmp_path / "out", dtype="bfloat16", log=tmp_path / "log")
    assert not (tmp_path / "out").exists()
    assert os.listdir(tmp_path / ".out.ingest") == ["lock"]
