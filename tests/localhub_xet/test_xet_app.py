from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from starlette.types import Message
from xet_encoder import File, Xorb, encode_shard

from hubtools.localhub.objects import ObjectStore
from hubtools.localhub.xet import app as app_module
from hubtools.localhub.xet.app import cas_app, xet_hash_of
from hubtools.localhub.xet.hashes import text_of
from hubtools.localhub.xet.refusal import MAX_OVERHEAD, MAX_SHARD, MAX_XORB

READ = {"authorization": "Bearer may-read"}
WRITE = {"authorization": "Bearer may-write"}
XORB = Xorb([b"%d " % n * 400 for n in range(20)], [n % 3 for n in range(20)])
FILE = File([(XORB, 2, 9), (XORB, 0, 20)])
XORB_URL = f"/_xet/v1/xorbs/default/{text_of(XORB.name)}"
FILE_URL = f"/_xet/v1/reconstructions/{text_of(FILE.name)}"


def token_ok(token: str, write: bool) -> bool:
    return token == "may-write" or (token == "may-read" and not write)


@pytest.fixture
def client(tmp_path: Path, objects: ObjectStore) -> Iterator[TestClient]:
    hub = Starlette(routes=[Mount("/_xet", app=cas_app(tmp_path, objects, token_ok))])
    with TestClient(hub) as client:
        yield client


@pytest.fixture
def filled(client: TestClient) -> TestClient:
    sent = client.post(XORB_URL, content=XORB.body, headers=WRITE)
    assert (sent.status_code, sent.json()) == (200, {"was_inserted": True})
    shard = encode_shard([FILE], [XORB])
    done = client.post("/_xet/v1/shards", content=shard, headers=WRITE)
    assert (done.status_code, done.json()) == (200, {"result": 1})
    return client


def download(client: TestClient, byte_range: str | None = None) -> bytes:
    headers = {**READ, "range": byte_range} if byte_range else READ
    plan = client.get(FILE_URL, headers=headers).json()
    data = b""
    for term in plan["terms"]:
        (entry,) = (
            e
            for e in plan["fetch_info"][term["hash"]]
            if e["range"]["start"] <= term["range"]["start"]
            and term["range"]["end"] <= e["range"]["end"]
        )
        wanted = f"bytes={entry['url_range']['start']}-{entry['url_range']['end']}"
        part = client.get(entry["url"], headers={"range": wanted})
        assert part.status_code == 206
        assert len(part.content) == entry["url_range"]["end"] - entry["url_range"]["start"] + 1
        data += b"".join(XORB.chunks[term["range"]["start"] : term["range"]["end"]])
    return data[plan["offset_into_first_range"] :]


def test_a_file_goes_up_and_comes_down(filled: TestClient, tmp_path: Path) -> None:
    assert download(filled) == FILE.content
    assert download(filled, "bytes=5000-5999")[:1000] == FILE.content[5000:6000]
    assert download(filled, "bytes=9000-") == FILE.content[9000:]
    digest = (tmp_path / "xet" / "sha256").iterdir().__next__().name
    assert xet_hash_of(tmp_path, digest) == text_of(FILE.name)
    assert xet_hash_of(tmp_path, "0" * 64) is None
    again = filled.post("/_xet/v1/shards", content=encode_shard([FILE], []), headers=WRITE)
    assert again.json() == {"result": 0}


def test_urls_lead_back_through_the_mount(filled: TestClient) -> None:
    (entries,) = filled.get(FILE_URL, headers=READ).json()["fetch_info"].values()
    assert all(entry["url"].startswith(f"http://testserver{XORB_URL}?") for entry in entries)


@pytest.mark.parametrize(
    ("method", "url"),
    [
        ("GET", "/_xet/v1/chunks/default/" + "0" * 64),
        ("POST", "/_xet/v1/xorb-grants/default/" + "0" * 64),
        ("POST", "/_xet/v2/shards"),
        ("GET", "/_xet/v2/reconstructions/" + "0" * 64),
    ],
)
def test_newer_routes_answer_404_so_that_the_client_falls_back(
    client: TestClient, method: str, url: str
) -> None:
    assert client.request(method, url, headers=WRITE).status_code == 404


def test_telemetry_is_accepted(client: TestClient) -> None:
    assert client.post("/_xet/v1/telemetry", content=b"{}").status_code == 200


@pytest.mark.parametrize(
    ("method", "url", "headers", "status"),
    [
        ("POST", XORB_URL, {}, 401),
        ("POST", XORB_URL, {"authorization": "Bearer no"}, 401),
        ("POST", XORB_URL, {"authorization": "Basic may-write"}, 401),
        ("POST", XORB_URL, READ, 403),
        ("POST", "/_xet/v1/shards", READ, 403),
        ("GET", FILE_URL, {}, 401),
        ("GET", XORB_URL, READ, 403),
    ],
)
def test_who_may_do_what(
    filled: TestClient, method: str, url: str, headers: dict[str, str], status: int
) -> None:
    answer = filled.request(method, url, headers=headers)
    assert (answer.status_code, answer.json()["error"]["id"]) == (status, "HT658")
    assert "may-" not in answer.text


def test_a_ticket_is_for_one_range_and_one_hour(
    filled: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((entry,),) = filled.get(FILE_URL, headers=READ).json()["fetch_info"].values()
    last = entry["url_range"]["end"]
    exact = {"range": f"bytes={entry['url_range']['start']}-{last}"}
    assert filled.get(entry["url"], headers=exact).status_code == 206
    for headers in ({}, {"range": f"bytes=0-{last - 1}"}):
        assert filled.get(entry["url"], headers=headers).status_code == 403
    later = entry["url"].replace("expires=", "expires=9")
    assert filled.get(later, headers=exact).status_code == 403
    now = app_module.time.time()
    monkeypatch.setattr(app_module.time, "time", lambda: now + app_module.TICKET_SECONDS + 5)
    assert filled.get(entry["url"], headers=exact).status_code == 403


@pytest.mark.parametrize(
    ("url", "byte_range", "status"),
    [
        (FILE_URL, f"bytes={len(FILE.content)}-", 416),
        (FILE_URL, f"bytes={len(FILE.content)}-{len(FILE.content) + 9}", 416),
        (FILE_URL, "bytes=7-3", 416),
        (FILE_URL, "bytes=-5", 400),
        (FILE_URL, "lines=1-2", 400),
        ("/_xet/v1/reconstructions/" + "0" * 64, "bytes=0-1", 404),
        ("/_xet/v1/reconstructions/nonsense", "bytes=0-1", 400),
    ],
)
def test_queries_that_cannot_be_answered(
    filled: TestClient, url: str, byte_range: str, status: int
) -> None:
    answer = filled.get(url, headers={**READ, "range": byte_range})
    assert (answer.status_code, answer.json()["error"]["id"]) == (status, "HT659")


@pytest.mark.parametrize(
    ("url", "body", "id"),
    [
        (XORB_URL, b"", "HT650"),
        (XORB_URL, XORB.body[:-1], "HT650"),
        (XORB_URL[:-1] + "0", XORB.body, "HT651"),
        ("/_xet/v1/shards", b"", "HT652"),
        ("/_xet/v1/shards", encode_shard([File([(Xorb([b"x"]), 0, 1)])], []), "HT653"),
    ],
)
def test_refusals_say_why_in_the_answer_and_in_the_log(
    client: TestClient, caplog: pytest.LogCaptureFixture, url: str, body: bytes, id: str
) -> None:
    with caplog.at_level(logging.WARNING):
        answer = client.post(url, content=body, headers=WRITE)
    error = answer.json()["error"]
    assert (answer.status_code, error["id"]) == (400, id)
    assert error["detail"] == ["Nothing was stored."]
    assert f"[{id}] {error['message']}" in caplog.text
    assert error["next"] in caplog.text


LIMITS = [(XORB_URL, MAX_XORB + MAX_OVERHEAD), ("/_xet/v1/shards", MAX_SHARD)]


@pytest.mark.parametrize(("url", "limit"), LIMITS)
def test_a_body_that_says_it_is_too_long_is_not_read(
    client: TestClient, url: str, limit: int
) -> None:
    answer = client.post(url, headers={**WRITE, "content-length": str(limit + 1)})
    assert (answer.status_code, answer.json()["error"]["id"]) == (413, "HT655")


@pytest.mark.parametrize(("url", "limit"), LIMITS)
def test_a_body_without_end_is_read_up_to_the_limit(
    client: TestClient, tmp_path: Path, url: str, limit: int
) -> None:
    piece = bytes(1 << 20)
    read = 0
    answers: list[Message] = []

    async def receive() -> Message:
        nonlocal read
        read += len(piece)
        assert read < 2 * limit
        return {"type": "http.request", "body": piece, "more_body": True}

    async def send(message: Message) -> None:
        answers.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": url,
        "query_string": b"",
        "headers": [(b"host", b"hub"), (b"authorization", b"Bearer may-write")],
    }
    asyncio.run(client.app(scope, receive, send))
    assert answers[0]["status"] == 413
    assert limit < read <= limit + 2 * len(piece)
    assert list((tmp_path / "xet" / "incoming").iterdir()) == []


def test_a_full_disk_is_said_and_nothing_half_stays(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    answer = client.post(XORB_URL, content=XORB.body, headers=WRITE)
    assert answer.status_code == 507
    assert answer.json()["error"]["message"] == "cannot write: disk full"
    assert [path for path in (tmp_path / "xet").rglob("*") if path.is_file()] == []
    monkeypatch.undo()
    assert client.post(XORB_URL, content=XORB.body, headers=WRITE).json()["was_inserted"]


def test_a_full_disk_while_rebuilding_leaves_no_record(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.post(XORB_URL, content=XORB.body, headers=WRITE)

    def full(descriptor: int) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    shard = encode_shard([FILE], [])
    assert client.post("/_xet/v1/shards", content=shard, headers=WRITE).status_code == 507
    monkeypatch.undo()
    assert client.get(FILE_URL, headers=READ).status_code == 404
    assert [path for path in (tmp_path / "tmp").rglob("*") if path.is_file()] == []
    assert client.post("/_xet/v1/shards", content=shard, headers=WRITE).json() == {"result": 1}
