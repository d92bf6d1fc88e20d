"""Kill anywhere, give the same command again: the same remote, the same store."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sharded_runs
import tiny_family
from hub_state import remote_state, store_state

from hubtools.localhub.server import LocalHub, running

REPOS = ["lab/tiny-red-s4", "lab/tiny-red-s8"]
KILLER = Path(__file__).parents[1] / "support" / "killed_cli.py"


def command(hub: LocalHub, root: Path, *before: str) -> tuple[list[str], dict[str, str]]:
    env = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": hub.token,
        "HF_HOME": str(root.parent / "hf"),
        "OMP_NUM_THREADS": "1",
    }
    env.pop("HF_HUB_OFFLINE", None)
    return [sys.executable, *before, "release", "--yes", str(root)], env


def undisturbed(hub: LocalHub, models: Path, root: Path) -> tuple[object, object]:
    shutil.copytree(models, root)
    argv, env = command(hub, root, "-m", "hubtools")
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return remote_state(hub, REPOS), store_state(root)


@pytest.fixture
def hubs(tmp_path: Path) -> object:
    with (
        running(tmp_path / "hub1", log=tmp_path / "hub1.log") as first,
        running(tmp_path / "hub2", log=tmp_path / "hub2.log") as second,
    ):
        yield first, second


def killed_until_done(hub: LocalHub, root: Path, marks: Path) -> list[str]:
    """Release, killed once at every event of the journal; the events in their order."""
    argv, env = command(hub, root, str(KILLER), str(marks))
    for _ in range(80):
        child = subprocess.Popen(
            argv, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        _, story = child.communicate(timeout=200)
        if child.returncode != -signal.SIGKILL:
            break
    assert child.returncode == 0, story
    deaths = marks.read_text().splitlines()
    assert len(deaths) == len(set(deaths))
    return deaths


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_at_every_journal_event(
    models: Path, tmp_path: Path, hubs: tuple[LocalHub, LocalHub]
) -> None:
    tiny_family.write_logs(models)
    tiny_family.write_manifest(models, suites='["short_qa"]', provenance=tiny_family.TEACHER)
    expected = undisturbed(hubs[0], models, tmp_path / "one" / "family")
    root = tmp_path / "two" / "family"
    shutil.copytree(models, root)
    deaths = killed_until_done(hubs[1], root, tmp_path / "marks")
    for event in ("release", "started", "finished", "created", "uploaded", "committed", "visible"):
        assert any(line.startswith(event) for line in deaths), event
    assert len(deaths) >= 25
    assert (remote_state(hubs[1], REPOS), store_state(root)) == expected


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_at_every_event_of_a_sharded_run_whose_weights_do_not_stay(
    tmp_path: Path, hubs: tuple[LocalHub, LocalHub]
) -> None:
    """Taken in, merged, published, deleted; killed at each step of it."""
    models = tiny_family.make_models(tmp_path / "models")
    run = sharded_runs.make_run(tmp_path / "run")
    for step in ("s4", "s8"):
        adapter = models / "runs" / "red" / step
        made = sharded_runs.make_lora_run(tmp_path / step, run, adapter)
        shutil.rmtree(adapter)
        made.rename(adapter)
    manifest = tiny_family.write_manifest(models)
    with manifest.open("a") as file:
        file.write('[ingest]\nlora_alpha = 24\n[release]\nweights = "delete"\n')
    expected = undisturbed(hubs[0], models, tmp_path / "one" / "family")
    root = tmp_path / "two" / "family"
    shutil.copytree(models, root)
    deaths = killed_until_done(hubs[1], root, tmp_path / "marks")
    assert any(line.startswith("freed") for line in deaths)
    assert (remote_state(hubs[1], REPOS), store_state(root)) == expected
    assert not list(root.glob("merged/*/model*.safetensors"))


def written(*folders: Path) -> int:
    """Bytes in all files below the folders, those that are just being written included."""
    total = 0
    for folder in folders:
        for file in folder.rglob("*"):
            try:
                total += file.stat().st_size if file.is_file() else 0
            except FileNotFoundError:
                continue  # renamed while we looked
    return total


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_at_random_bytes_of_merge_and_upload(
    tmp_path: Path, hubs: tuple[LocalHub, LocalHub]
) -> None:
    models = tiny_family.make_models(tmp_path / "models", hidden_size=512, vocab_size=12_000)
    tiny_family.write_manifest(models)
    one, two = tmp_path / "one" / "family", tmp_path / "two" / "family"
    places = (two / "merged", hubs[1].root)
    idle = written(hubs[0].root)
    expected = undisturbed(hubs[0], models, one)
    total = written(one / "merged", hubs[0].root) - idle
    shutil.copytree(models, two)
    argv, env = command(hubs[1], two, "-m", "hubtools")
    seed = random.randrange(10**6)
    print("seed", seed)
    killed = 0
    for share in sorted(random.Random(seed).uniform(0.02, 0.9) for _ in range(6)):
        child = subprocess.Popen(
            argv, env=env, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        while child.poll() is None:
            if written(*places) - idle >= share * total:
                os.killpg(child.pid, signal.SIGKILL)
                killed += 1
                break
            time.sleep(0.002)
        child.wait()
    assert killed >= 3
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert (remote_state(hubs[1], REPOS), store_state(two)) == expected
