"""The recording proxy: what it passes on, what it keeps, and what it never lets through."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest
from loopback import listening

from hubtools.errors import EnvironmentFailure
from hubtools.evaluation.proxy import read_calls, recording

KEY = "the-real-key-9f3c"
CHAT = {"model": "asked", "messages": [{"role": "user", "content": "hi"}], "temperature": 0.5}
Script = Callable[[int, Any], tuple[int, str, bytes]]


@contextmanager
def scripted(script: Script) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server whose answer is `script(attempt, handler)`: status, content type, body."""
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"] or 0))
            seen.append({"path": self.path, "headers": dict(self.headers), "body": body})
            status, kind, data = script(len(seen), self)
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            pass

    with listening(Handler) as url:
        yield url, seen


def says(text: str) -> tuple[int, str, bytes]:
    body = {"model": "returned", "choices": [{"message": {"content": text}}]}
    return 200, "application/json", json.dumps(body).encode()


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls.jsonl.zst"


@contextmanager
def proxied(script: Script, calls: Path) -> Iterator[tuple[httpx.Client, list[dict[str, Any]]]]:
    with (
        scripted(script) as (upstream, seen),
        recording(upstream, api_key_env="PROXY_TEST_KEY", file=calls, pause=0.001) as url,
        httpx.Client(base_url=url, trust_env=False) as client,
    ):
        yield client, seen


def test_the_answer_passes_and_is_kept(calls: Path) -> None:
    with proxied(lambda n, h: says("hello"), calls) as (client, seen):
        answer = client.post("/chat/completions", json=CHAT, headers={"X-Sample": "6/0"}).json()
    assert answer["choices"][0]["message"]["content"] == "hello"
    (call,) = read_calls(calls)
    assert call["response"] == answer
    assert (call["sample"], call["status"], call["attempts"]) == ("6/0", 200, 1)
    assert call["params"] == {"model": "asked", "temperature": 0.5}
    assert "x-sample" not in {name.lower() for name in seen[0]["headers"]}


def test_the_key_is_added_here_and_never_comes_back(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXY_TEST_KEY", KEY)

    def repeats(n: int, handler: Any) -> tuple[int, str, bytes]:
        return 401, "text/plain", f"bad: {handler.headers['authorization']}".encode()

    headers = {"Authorization": "Bearer dummy-of-the-child", "Cookie": "c"}
    with proxied(repeats, calls) as (client, seen):
        answer = client.post("/chat/completions", json={**CHAT, "api_key": KEY}, headers=headers)
    assert seen[0]["headers"]["authorization"] == f"Bearer {KEY}"
    assert "cookie" not in {name.lower() for name in seen[0]["headers"]}
    assert answer.status_code == 401
    assert KEY not in answer.text
    (call,) = read_calls(calls)
    assert call["failure"] == "HTTP 401"
    assert KEY not in json.dumps(call)
    assert "dummy-of-the-child" not in json.dumps(call)


def test_a_broken_answer_is_asked_again(calls: Path) -> None:
    with proxied(lambda n, h: says("ok") if n == 3 else (500, "text/plain", b"oh"), calls) as (
        client,
        _,
    ):
        assert client.post("/chat/completions", json=CHAT).status_code == 200
    (call,) = read_calls(calls)
    assert (call["attempts"], call["failure"]) == (3, "")


def test_an_answer_that_breaks_off_is_asked_again(calls: Path) -> None:
    def cuts(n: int, handler: Any) -> tuple[int, str, bytes]:
        if n == 1:
            handler.wfile.write(b"HTTP/1.0 200 OK\r\ncontent-length: 99\r\n\r\n{")
            handler.wfile.flush()
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.wfile = io.BytesIO()
        return says("whole")

    with proxied(cuts, calls) as (client, _):
        answer = client.post("/chat/completions", json=CHAT).json()
    assert answer["choices"][0]["message"]["content"] == "whole"
    assert [call["attempts"] for call in read_calls(calls)] == [2]


def test_a_lasting_fault_is_told_and_kept(calls: Path) -> None:
    with proxied(lambda n, h: (503, "text/plain", b"busy"), calls) as (client, seen):
        answer = client.post("/chat/completions", json=CHAT)
    assert (answer.status_code, answer.text, len(seen)) == (503, "busy", 5)
    assert [call["failure"] for call in read_calls(calls)] == ["HTTP 503"]


def test_a_server_that_is_gone_is_a_failure_of_the_call(calls: Path) -> None:
    with scripted(lambda n, h: says("never")) as (upstream, _):
        pass
    with recording(upstream, api_key_env="PROXY_TEST_KEY", file=calls, pause=0.001) as url:
        answer = httpx.post(f"{url}/chat/completions", json=CHAT, trust_env=False)
    assert answer.status_code == 502
    assert [call["failure"] for call in read_calls(calls)] == ["the server does not answer"]


def test_a_stream_passes_line_by_line_without_the_key(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXY_TEST_KEY", KEY)
    stream = f'data: {{"model": "returned"}}\n\ndata: {KEY}\n\ndata: [DONE]\n\n'.encode()
    with proxied(lambda n, h: (200, "text/event-stream", stream), calls) as (client, _):
        text = client.post("/chat/completions", json={**CHAT, "stream": True}).text
    assert text == stream.decode().replace(KEY, "***")
    (call,) = read_calls(calls)
    assert call["response"].splitlines()[0] == 'data: {"model": "returned"}'
    assert KEY not in call["response"]


def test_questions_about_the_server_pass_and_are_not_kept(calls: Path) -> None:
    with proxied(lambda n, h: (200, "application/json", b'{"data": []}'), calls) as (client, seen):
        assert client.get("/models?x=1").json() == {"data": []}
    assert seen[0]["path"] == "/v1/models?x=1"
    assert list(read_calls(calls)) == []


def test_a_cut_last_call_is_dropped_and_later_ones_are_read(calls: Path) -> None:
    with proxied(lambda n, h: says(str(n)), calls) as (client, _):
        for _ in range(3):
            client.post("/chat/completions", json=CHAT)
    whole = calls.read_bytes()
    calls.write_bytes(whole[:-3])
    assert len(list(read_calls(calls))) == 2
    with proxied(lambda n, h: says("again"), calls) as (client, _):
        client.post("/chat/completions", json=CHAT)
    texts = [c["response"]["choices"][0]["message"]["content"] for c in read_calls(calls)]
    assert texts == ["1", "2", "again"]


def test_not_json_is_kept_as_text(calls: Path) -> None:
    with proxied(lambda n, h: (200, "application/json", b'{"x": NaN'), calls) as (client, _):
        client.post("/chat/completions", content=b"\xff{")
    (call,) = read_calls(calls)
    assert (call["response"], call["params"]) == ('{"x": NaN', {})


def test_many_at_once(calls: Path) -> None:
    with proxied(lambda n, h: says("x" * 1000), calls) as (client, _):
        threads = [
            threading.Thread(target=lambda: client.post("/chat/completions", json=CHAT))
            for _ in range(32)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(list(read_calls(calls))) == 32


def test_a_file_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with (
        pytest.raises(EnvironmentFailure, match="HT901"),
        recording("http://127.0.0.1:1/v1", api_key_env="X", file=tmp_path / "taken" / "f"),
    ):
        pass
