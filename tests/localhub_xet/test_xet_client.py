"""The storage against the client it is for: the `hf_xet` wheel, in its own process."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from hubtools.localhub.objects import ObjectStore

HERE = Path(__file__).parent


@contextmanager
def serving(root: Path, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, str(HERE / "xet_server.py"), str(root), str(port)]
    root.mkdir(exist_ok=True)
    with (
        (root / "log").open("ab") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as server,
    ):
        try:
            assert server.stdout is not None
            yield server, f"http://127.0.0.1:{int(server.stdout.readline())}/_xet"
        finally:
            server.kill()


def start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    env = {"PATH": os.environ["PATH"], "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, str(HERE / "xet_client.py"), *arguments]
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def client(home: Path, *arguments: str) -> str:
    with start(home, *arguments) as process:
        out, problem = process.communicate(timeout=60)
    assert process.returncode == 0, problem
    return out


def upload(home: Path, url: str, paths: Sequence[Path]) -> list[str]:
    hashes: list[str] = json.loads(client(home, "up", url, *map(str, paths)))
    return hashes


def download(home: Path, url: str, hashes: Sequence[str], paths: Sequence[Path]) -> list[bytes]:
    home.mkdir(exist_ok=True)
    targets = [home / f"got-{path.name}" for path in paths]
    pairs = zip(hashes, paths, targets, strict=True)
    wanted = [f"{hash}={path.stat().st_size}={target}" for hash, path, target in pairs]
    client(home, "down", url, *wanted)
    return [target.read_bytes() for target in targets]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Floats (byte grouping), text (LZ4), noise (stored), a near copy (dedup), one byte."""
    seed = random.Random(5)
    noise = seed.randbytes(9_000_000)
    contents = {
        "floats": np.random.default_rng(5).normal(size=1_000_000).astype("<f4").tobytes(),
        "text": b"".join(b"line %d of a log\n" % n for n in range(200_000)),
        "noise": noise,
        "near": noise[:4_000_000] + b"changed" + noise[4_000_000:],
        "one": b"1",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return [tmp_path / name for name in contents]


def test_bytes_come_back_and_shared_content_is_kept_once(tmp_path: Path, files: list[Path]) -> None:
    root = tmp_path / "root"
    near = files.pop(3)
    with serving(root) as (_, url):
        hashes = upload(tmp_path / "first", url, files)
        before = stored(root)
        hashes += upload(tmp_path / "first", url, [near])
        assert stored(root) - before < 1_000_000 < near.stat().st_size
        files.append(near)
        assert download(tmp_path / "second", url, hashes, files) == [
            path.read_bytes() for path in files
        ]
    objects = ObjectStore(root)
    assert all(objects.has(sha256(path.read_bytes()).hexdigest()) for path in files)


def stored(root: Path) -> int:
    return sum(path.stat().st_size for path in (root / "xet" / "xorbs").glob("*.xorb"))


def test_what_was_acknowledged_survives_a_killed_server(tmp_path: Path, files: list[Path]) -> None:
    root = tmp_path / "root"
    with serving(root) as (server, url):
        hashes = upload(tmp_path / "first", url, files)
        server.send_signal(signal.SIGKILL)
        server.wait()
    with serving(root) as (_, url):
        assert download(tmp_path / "second", url, hashes, files) == [
            path.read_bytes() for path in files
        ]


def test_a_new_server_at_an_old_address_refuses_what_the_client_believes_is_there(
    tmp_path: Path, files: list[Path]
) -> None:
    with serving(tmp_path / "old") as (_, url):
        upload(tmp_path / "home", url, files)
    port = int(url.split(":")[2].split("/")[0])
    with serving(tmp_path / "new", port) as (_, url):
        with start(tmp_path / "home", "up", url, str(files[2])) as process:
            _, problem = process.communicate(timeout=60)
        assert process.returncode != 0
        assert "400 Bad Request" in problem
        log = (tmp_path / "new" / "log").read_text()
        assert "[HT653] this storage has no xorb" in log
        assert "HF_XET_CACHE" in log
        upload(tmp_path / "other home", url, [files[2]])


def test_four_clients_at_once(tmp_path: Path, files: list[Path]) -> None:
    with serving(tmp_path / "root") as (_, url):
        with ExitStack() as stack:
            senders = [
                stack.enter_context(start(tmp_path / f"home{n}", "up", url, *map(str, files)))
                for n in range(4)
            ]
            answers = [process.communicate(timeout=100) for process in senders]
        assert [process.returncode for process in senders] == [0] * 4, answers
        hashes = [json.loads(out) for out, _ in answers]
        assert hashes == [hashes[0]] * 4
        assert download(tmp_path / "reader", url, hashes[0], files) == [
            path.read_bytes() for path in files
        ]


@pytest.mark.parametrize("path", ["xorbs/default/" + "0" * 64, "shards"])
def test_a_client_that_goes_away_leaves_nothing(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    with serving(root) as (_, url):
        port = int(url.split(":")[2].split("/")[0])
        with socket.create_connection(("127.0.0.1", port)) as wire:
            wire.sendall(
                f"POST /_xet/v1/{path} HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer token\r\n"
                "Content-Length: 1000000\r\n\r\n".encode()
                + b"x" * 1000
            )
            deadline = time.monotonic() + 5
            while not incoming(root) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert incoming(root)
        deadline = time.monotonic() + 5
        while incoming(root) and time.monotonic() < deadline:
            time.sleep(0.01)
        with urllib.request.urlopen(f"{url}/v1/telemetry", b"{}", timeout=5) as alive:
            assert alive.status == 200
    assert incoming(root) == []
    assert "Traceback" not in (root / "log").read_text()


def incoming(root: Path) -> list[Path]:
    return list((root / "xet" / "incoming").iterdir())
