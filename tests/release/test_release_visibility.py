"""A repo is shown to the world only by the Hub, and the run, that created it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_family
from huggingface_hub import HfApi

from hubtools.localhub.server import LocalHub, running

REPO = "lab/tiny-red-s4"


@pytest.fixture
def full(tmp_path: Path) -> Path:
    root = tiny_family.make_full_models(tmp_path / "family")
    tiny_family.write_manifest(root, kind="full")
    return root


def release_killed_at(event: str, hub: LocalHub, root: Path, hubtools: Callable[..., Any]) -> None:
    """One member's release, killed at one event of its journal."""
    script = root.parent / "killed_once.py"
    script.write_text(
        "import os, signal, sys\n"
        "from hubtools.cli.main import main\n"
        "from hubtools.release.journal import Journal\n"
        "write = Journal.write\n"
        "def deadly(self, event, *target, **data):\n"
        "    write(self, event, *target, **data)\n"
        f"    event == {event!r} and os.kill(os.getpid(), signal.SIGKILL)\n"
        "Journal.write = deadly\n"
        "main(sys.argv[1:])\n"
    )
    env = {"HF_ENDPOINT": hub.url, "HF_TOKEN": hub.token, "PYTHONPATH": str(root.parent)}
    ended = hubtools("release", "--yes", str(root), "red/s4", module="killed_once", env=env)
    assert ended.code < 0, ended.err


def private(hub: LocalHub) -> bool:
    return bool(HfApi(endpoint=hub.url, token=hub.token).model_info(REPO).private)


def test_a_rehearsal_that_was_killed_shows_no_private_repo_elsewhere(
    hub: LocalHub, hubtools: Callable[..., Any], full: Path, tmp_path: Path
) -> None:
    with running(tmp_path / "rehearsal", log=tmp_path / "rehearsal.log") as rehearsal:
        release_killed_at("created", rehearsal, full, hubtools)
        HfApi(endpoint=hub.url, token=hub.token).create_repo(REPO, private=True)
        done = hubtools("release", "--yes", str(full), "red/s4")
        assert done.code == 0, done.err
        assert private(hub)
        assert "warning[HT523]" in done.err
        env = {"HF_ENDPOINT": rehearsal.url, "HF_TOKEN": rehearsal.token}
        done = hubtools("release", "--yes", str(full), "red/s4", env=env)
        assert done.code == 0, done.err
        assert "HT523" not in done.err
        assert not private(rehearsal)


def test_two_families_in_one_repo_are_told(
    hub: LocalHub, hubtools: Callable[..., Any], full: Path
) -> None:
    assert hubtools("release", "--yes", str(full), "red/s4").code == 0
    manifest = full / "family.toml"
    text = manifest.read_text()
    manifest.write_text(text.replace('id = "tiny"', 'id = "other"\nname = "tiny-{arm}-{step}"'))
    planned = hubtools("plan", str(full), "red/s4", "--json")
    assert planned.code == 0, planned.err
    told = [f for f in json.loads(planned.out)["findings"] if f["id"] == "HT524"]
    assert [f["member"] for f in told] == ["red/s4"]
    assert "'tiny'" in told[0]["message"]
