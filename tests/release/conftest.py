"""A Hub in a child process and a tiny family, both made once; every test gets a copy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tiny_family

from hubtools.localhub.server import LocalHub, running


@dataclass(frozen=True)
class Ended:
    """A command that ended."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_family.make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def family(models: Path, tmp_path: Path) -> Path:
    """A merged family without suites and teacher, in a folder of its own."""
    root = tmp_path / "family"
    shutil.copytree(models, root)
    tiny_family.write_manifest(root)
    return root


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[LocalHub]:
    with running(tmp_path / "hub", log=tmp_path / "hub.log", faults=[]) as server:
        yield server


@pytest.fixture
def hubtools(hub: LocalHub, tmp_path: Path) -> Callable[..., Ended]:
    """Run the command line as a user would: a process of its own, a cache of its own."""
    env = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": hub.token,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "OMP_NUM_THREADS": "1",
        "HUBTOOLS_DEBUG": "1",
    }
    env.pop("HF_HUB_OFFLINE", None)

    def run(*argv: str, module: str = "hubtools", **options: Any) -> Ended:
        done = subprocess.run(
            [sys.executable, "-m", module, *argv],
            env={**env, **options.pop("env", {})},
            capture_output=True,
            text=True,
            timeout=280,
            cwd=tmp_path,
            **options,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return run
