"""Faults reach the client as a bad network or a bad server would."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from localhub_client import Client, lfs, regular

from hubtools.localhub.faults import Fault
from hubtools.localhub.server import LocalHub, running

REPO = "lab/faulty"


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHub]:
    base = tmp_path_factory.mktemp("faulty")
    with running(base / "root", xet=False, faults=[], log=base / "log") as server:
        yield server


@pytest.fixture
def client(faulty: LocalHub) -> Iterator[Client]:
    client = Client(faulty.url, faulty.token)
    yield client
    faulty.set_faults([])
    client.http.close()


def test_a_rule_from_the_start(tmp_path: Path) -> None:
    limit = {"RateLimit": '"api";r=0;t=1'}
    rule = Fault("GET", r"^/api/whoami", "status", status=429, headers=limit)
    with running(tmp_path / "root", xet=False, faults=[rule], log=tmp_path / "log") as server:
        client = Client(server.url, server.token)
        first = client.http.get("/api/whoami-v2")
        assert (first.status_code, first.headers["ratelimit"]) == (429, '"api";r=0;t=1')
        assert client.http.get("/api/whoami-v2").status_code == 200
        client.http.close()


def test_the_nth_and_how_often(faulty: LocalHub, client: Client) -> None:
    faulty.set_faults([Fault("*", "whoami", "status", nth=2, times=2, status=503)])
    asked = [client.http.get("/api/whoami-v2").status_code for _ in range(5)]
    assert asked == [200, 503, 503, 200, 200]


def test_a_delay(faulty: LocalHub, client: Client) -> None:
    faulty.set_faults([Fault("GET", "whoami", "delay", seconds=0.4)])
    start = time.monotonic()
    assert client.http.get("/api/whoami-v2").status_code == 200
    assert time.monotonic() - start >= 0.4


def test_a_commit_that_lands_and_an_answer_that_does_not(faulty: LocalHub, client: Client) -> None:
    client.create(REPO)
    before = client.head(REPO)
    faulty.set_faults([Fault("POST", "/commit/", "lands-then-status", status=500)])
    assert client.commit(REPO, regular("a", b"1"), parent=before).status_code == 500
    assert client.head(REPO) != before
    assert client.commit(REPO, regular("a", b"1"), parent=before).status_code == 412


def test_an_upload_cut_in_the_middle(faulty: LocalHub, client: Client) -> None:
    client.create(REPO)
    data = bytes(3_000_000)
    faulty.set_faults([Fault("PUT", "^/_lfs/", "drop-request", bytes=1_000_000)])
    with pytest.raises(httpx.TransportError):
        client.upload(REPO, data)
    assert client.commit(REPO, lfs("w.bin", data)).status_code == 400
    assert not list(faulty.root.glob("tmp/*"))
    assert client.upload(REPO, data).status_code == 200
    assert client.commit(REPO, lfs("w.bin", data)).status_code == 200


def test_a_download_cut_in_the_middle_and_resumed(faulty: LocalHub, client: Client) -> None:
    client.create(REPO)
    data = bytes(range(250)) * 12_000
    client.upload(REPO, data)
    client.commit(REPO, lfs("d.bin", data))
    url = f"/{REPO}/resolve/main/d.bin"
    faulty.set_faults([Fault("GET", "d.bin", "drop-response", bytes=1_000_000)])
    pieces: list[bytes] = []
    with client.http.stream("GET", url) as answer, pytest.raises(httpx.TransportError):
        pieces.extend(answer.iter_raw())
    received = b"".join(pieces)
    assert received == data[: len(received)]
    assert 0 < len(received) <= 1_000_000
    rest = client.http.get(url, headers={"Range": f"bytes={len(received)}-"})
    assert received + rest.content == data


def test_without_faults_there_is_no_switch(hub: LocalHub) -> None:
    assert httpx.post(f"{hub.url}/_faults", json=[], trust_env=False).status_code == 404
