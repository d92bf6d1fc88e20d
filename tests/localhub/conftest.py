"""A running Hub without xet storage, two ordinary users, and plain HTTP clients for each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest
from localhub_client import Client, issue

from hubtools.localhub.server import LocalHub, running


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHub]:
    base = tmp_path_factory.mktemp("hub")
    with running(base / "root", xet=False, log=base / "log", lfs_part=1 << 20) as server:
        yield server


@pytest.fixture
def repo(request: pytest.FixtureRequest) -> str:
    """A repo id that no other test uses."""
    return "lab/r" + hashlib.sha1(request.node.nodeid.encode()).hexdigest()[:12]


def _client(url: str, token: str | None) -> Iterator[Client]:
    client = Client(url, token)
    yield client
    client.http.close()


@pytest.fixture
def admin(hub: LocalHub) -> Iterator[Client]:
    yield from _client(hub.url, hub.token)


@pytest.fixture
def nobody(hub: LocalHub) -> Iterator[Client]:
    yield from _client(hub.url, None)


@pytest.fixture
def alice(hub: LocalHub) -> Iterator[Client]:
    yield from _client(hub.url, issue(hub.root, "alice"))


@pytest.fixture
def reader(hub: LocalHub) -> Iterator[Client]:
    """Alice's other token, with the read role."""
    yield from _client(hub.url, issue(hub.root, "alice", "read"))
