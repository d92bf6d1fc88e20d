"""Servers to talk to: one that answers what a test dictates, and the embedded Hub."""

from __future__ import annotations

import hashlib
import random
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hub_servers import CARD, QUICK, Canned

from hubtools.hub.session import Session, connect
from hubtools.localhub.server import LocalHub, running


@pytest.fixture
def canned() -> Iterator[Canned]:
    script = Canned()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            script.seen.append(f"{self.command} {self.path}")
            turn = min(len(script.seen), len(script.answers)) - 1
            answer = script.answers[turn]
            if answer is None:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            status, headers, body = answer
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_port}"
    yield script
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("xet")


@pytest.fixture(autouse=True)
def _own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage client keeps chunks per endpoint; never those of an earlier server."""
    monkeypatch.setenv("HF_XET_CACHE", str(cache))
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")


@pytest.fixture(scope="session")
def shared_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHub]:
    folder = tmp_path_factory.mktemp("hub")
    with running(folder / "root", faults=[], log=folder / "log") as hub:
        yield hub


@pytest.fixture
def hub(shared_hub: LocalHub) -> Iterator[LocalHub]:
    """The embedded Hub with xet storage, without faults at first."""
    yield shared_hub
    shared_hub.set_faults([])


@pytest.fixture
def plain_hub(tmp_path: Path) -> Iterator[LocalHub]:
    """A Hub without xet storage."""
    with running(tmp_path / "hub", xet=False, log=tmp_path / "log") as hub:
        yield hub


@pytest.fixture
def session(hub: LocalHub) -> Session:
    return connect(hub.url, token=hub.token, patience=QUICK)


@pytest.fixture(params=["xet", "lfs"])
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test over both ways in which the client sends large files."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", request.param == "lfs")
    return str(request.param)


@pytest.fixture
def repo(request: pytest.FixtureRequest) -> str:
    """A repo id of this test alone."""
    digest = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]
    return f"ann/r-{digest}"


@pytest.fixture
def content(repo: str) -> dict[str, bytes]:
    """Files of a small checkpoint; the weights are this test's own, so that they must be sent."""
    weights = random.Random(repo).randbytes(300_000)
    return {"README.md": CARD.encode(), "config.json": b"{}", "model.safetensors": weights}
