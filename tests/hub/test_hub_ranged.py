"""Parts of files, and not a byte more, from a Hub that serves ranges and from one that does not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from hub_servers import QUICK, Canned

from hubtools.errors import HubtoolsError
from hubtools.hub.ranged import RepoReader, open_repo
from hubtools.hub.session import Session, connect
from hubtools.localhub.server import LocalHub

SIZE = 3_000_000
DATA = bytes(range(256)) * (SIZE // 256)


class Meter:
    """Passes connections on to a Hub and counts what comes back."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.target = parts.hostname, parts.port
        self.received = 0
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            hub = socket.create_connection(self.target)
            for ends in ((client, hub, False), (hub, client, True)):
                threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if counted:
                    self.received += len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return


@pytest.fixture
def meter(hub: LocalHub) -> Iterator[Meter]:
    meter = Meter(hub.url)
    yield meter
    meter.server.close()


@pytest.fixture
def reader(session: Session, hub: LocalHub, meter: Meter, repo: str, storage: str) -> RepoReader:
    """A repo with one large file and one small one, read through the meter."""
    session.api.create_repo(repo)
    for name, data in (("model.safetensors", DATA), ("config.json", b'{"a": 1}')):
        session.api.upload_file(path_or_fileobj=data, path_in_repo=name, repo_id=repo)
    return open_repo(connect(meter.url, token=hub.token, patience=QUICK), repo)


def test_a_range_is_all_that_travels(reader: RepoReader, meter: Meter) -> None:
    assert reader.files["model.safetensors"].size == len(DATA)
    before = meter.received
    assert reader.read("model.safetensors", 0, 1000) == DATA[:1000]
    assert reader.read("model.safetensors", 70_001, 80_000) == DATA[70_001:80_000]
    assert meter.received - before < 11_000 + 8_000  # answers have headers, too
    assert (reader.requests, reader.received) == (2, 10_999)


def test_the_end_of_a_file(reader: RepoReader) -> None:
    assert reader.read("config.json", 0, 100) == b'{"a": 1}'
    assert reader.read("config.json", 5, 100) == b" 1}"
    assert reader.read("config.json", 100, 200) == b""


def test_a_revision_is_pinned_when_it_is_opened(reader: RepoReader, session: Session) -> None:
    first = reader.commit
    session.api.upload_file(
        path_or_fileobj=b'{"a": 2}', path_in_repo="config.json", repo_id=reader.repo
    )
    assert reader.read("config.json", 0, 100) == b'{"a": 1}'
    again = open_repo(session, reader.repo)
    assert again.commit != first
    assert again.read("config.json", 0, 100) == b'{"a": 2}'
    assert open_repo(session, reader.repo, first).read("config.json", 0, 100) == b'{"a": 1}'


@pytest.mark.parametrize("revision", [None, "nowhere", "0" * 40])
def test_what_is_not_there(session: Session, repo: str, revision: str | None) -> None:
    if revision is not None:
        session.api.create_repo(repo)
    with pytest.raises(HubtoolsError, match="HT308") as caught:
        open_repo(session, repo, revision)
    assert caught.value.next


@pytest.mark.parametrize(("token", "fix"), [("", "hf auth login"), (None, "hf auth whoami")])
def test_a_repo_that_is_not_there_or_not_shown(
    hub: LocalHub, repo: str, token: str | None, fix: str
) -> None:
    asking = connect(hub.url, token=hub.token if token is None else token, patience=QUICK)
    with pytest.raises(HubtoolsError, match="HT308") as caught:
        open_repo(asking, repo)
    assert caught.value.message.startswith(f"the Hub has no model repo {repo} that ")
    assert caught.value.next.endswith(fix)


def test_without_a_token_the_hub_says_401(canned: Canned) -> None:
    canned.answers = [(401, {"X-Error-Code": "RepoNotFound"}, b"{}")]
    with pytest.raises(HubtoolsError, match="HT308") as caught:
        open_repo(connect(canned.url, token="", patience=QUICK), "ann/x")
    assert "there is no token" in caught.value.message


def whole(canned: Canned, repo: str = "ann/x") -> RepoReader:
    return RepoReader(connect(canned.url, token="", patience=QUICK), repo, "c" * 40, {})


def test_a_hub_without_ranges_sends_no_more_than_was_asked(canned: Canned) -> None:
    canned.answers = [(200, {}, DATA)]
    reader = whole(canned)
    assert reader.read("model.safetensors", 0, 1000) == DATA[:1000]
    with pytest.raises(HubtoolsError, match="HT182") as caught:
        reader.read("model.safetensors", 1000, 2000)
    assert "ann/x" in caught.value.next


@pytest.mark.parametrize(("status", "id"), [(403, "HT3"), (404, "HT3"), (503, "HT309")])
def test_a_refusal_is_explained(canned: Canned, status: int, id: str) -> None:
    canned.answers = [(status, {}, b"no")]
    with pytest.raises(HubtoolsError, match=id):
        whole(canned).read("a b.json", 0, 10)
    assert canned.seen[0] == f"GET /ann/x/resolve/{'c' * 40}/a%20b.json"
    assert len(canned.seen) == (QUICK.attempts if status == 503 else 1)
