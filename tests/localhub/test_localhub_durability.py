"""A commit that was answered stays; one at a time; memory stays small."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from localhub_client import Client, lfs, regular

from hubtools.localhub.objects import ObjectStore
from hubtools.localhub.server import LocalHub, running


def commits(client: Client, repo: str) -> list[str]:
    answer = client.http.get(f"/api/models/{repo}/commits/main?limit=1000")
    return [item["id"] for item in answer.json()]


def test_landed_commits_survive_kill_9(tmp_path: Path) -> None:
    """Six times: commit without pause, kill at a random moment, start again, look."""
    root, repo = tmp_path / "root", "lab/kill"
    acknowledged: list[str] = []
    serial = 0
    chance = random.Random(7)
    for _ in range(6):
        with running(root, xet=False, log=tmp_path / "log") as server:
            client = Client(server.url, server.token)
            client.create(repo)
            seen = commits(client, repo)
            assert [oid for oid in seen if oid in acknowledged] == acknowledged[::-1]
            assert len(seen) - 1 - len(acknowledged) in (0, 1)  # landed, answer not heard
            acknowledged = seen[:-1][::-1]
            timer = threading.Timer(chance.uniform(0.1, 0.5), os.kill, (server.pid, signal.SIGKILL))
            timer.start()
            try:
                while True:
                    serial += 1
                    data = f"weights {serial}".encode() * 5000
                    client.upload(repo, data)
                    answer = client.commit(repo, lfs("w.bin", data), regular(f"n/{serial}", b"x"))
                    acknowledged.append(answer.json()["commitOid"])
            except (httpx.TransportError, KeyError):
                timer.join()
            client.http.close()
    assert len(acknowledged) > 6
    with running(root, xet=False, log=tmp_path / "log") as server:
        client = Client(server.url, server.token)
        store = ObjectStore(root)
        for oid in acknowledged:
            tree = client.http.get(f"/api/models/{repo}/tree/{oid}?recursive=true").json()
            weights = next(item for item in tree if item["path"] == "w.bin")
            store.check(weights["lfs"]["oid"])
        client.http.close()
        assert list((root / "tmp").iterdir()) == []


def test_one_commit_at_a_time(hub: LocalHub, admin: Client, repo: str) -> None:
    admin.create(repo)

    def blind(number: int) -> str:
        client = Client(hub.url, hub.token)
        answer = client.commit(repo, regular(f"f{number}", b"x"))
        client.http.close()
        return str(answer.json()["commitOid"])

    with ThreadPoolExecutor(8) as pool:
        landed = list(pool.map(blind, range(24)))
    assert sorted(commits(admin, repo)[:-1]) == sorted(landed)
    tree = admin.http.get(f"/api/models/{repo}/tree/main").json()
    assert len(tree) == 25

    head = admin.head(repo)

    def guarded(number: int) -> int:
        client = Client(hub.url, hub.token)
        answer = client.commit(repo, regular("same", b"%d" % number), parent=head)
        client.http.close()
        return answer.status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(guarded, range(8))) == [200] + [412] * 7


def test_large_files_are_streamed(hub: LocalHub, admin: Client, repo: str) -> None:
    admin.create(repo)
    size = 96 << 20
    block = os.urandom(1 << 20)
    digest = hashlib.sha256()
    for _ in range(96):
        digest.update(block)
    oid = digest.hexdigest()
    asked = {"operation": "upload", "objects": [{"oid": oid, "size": size}]}
    batch = admin.http.post(f"/{repo}.git/info/lfs/objects/batch", json=asked).json()
    href = batch["objects"][0]["actions"]["upload"]["href"]
    before = peak_memory(hub.pid)
    answer = admin.http.put(href, content=(block for _ in range(96)))
    assert answer.status_code == 200, answer.text
    line = {"key": "lfsFile", "value": {"path": "w.bin", "oid": oid, "size": size}}
    assert admin.commit(repo, line).status_code == 200
    received = 0
    with admin.http.stream("GET", f"/{repo}/resolve/main/w.bin") as stream:
        for piece in stream.iter_raw():
            received += len(piece)
    assert received == size
    assert peak_memory(hub.pid) - before < 48 << 20


def peak_memory(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    pytest.fail("no VmHWM in /proc")


def test_a_full_disk_is_said_and_survived(tmp_path: Path) -> None:
    """A file size limit stands in for the full disk."""
    with running(tmp_path / "root", xet=False, log=tmp_path / "log") as server:
        client = Client(server.url, server.token)
        client.create("lab/full")
        head = client.head("lab/full")
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (3_000_000, hard))
        data = bytes(8_000_000)
        refused = client.upload("lab/full", data)
        assert (refused.status_code, refused.json()["error"]) == (
            507,
            "the embedded Hub's disk is full",
        )
        assert client.commit("lab/full", regular("a", bytes(5_000_000))).status_code == 507
        assert client.head("lab/full") == head
        assert list((tmp_path / "root" / "tmp").iterdir()) == []
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (hard, hard))
        assert client.upload("lab/full", data).status_code == 200
        assert client.commit("lab/full", lfs("w.bin", data), parent=head).status_code == 200
        client.http.close()
