"""One embedded Hub per module; every client is a process with its own environment and cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from witness_machine import Machine

from hubtools.localhub.server import LocalHub, running


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHub]:
    folder = tmp_path_factory.mktemp("hub")
    with running(folder / "root", log=folder / "log") as hub:
        yield hub


@pytest.fixture(params=[True, False], ids=["xet", "lfs"])
def xet(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def machine(tmp_path: Path, hub: LocalHub, xet: bool) -> Machine:
    return Machine(tmp_path / "sender", hub, xet)


@pytest.fixture
def other(tmp_path: Path, hub: LocalHub, xet: bool) -> Machine:
    """A second computer, which has seen nothing of what the first one sent."""
    return Machine(tmp_path / "receiver", hub, xet)
