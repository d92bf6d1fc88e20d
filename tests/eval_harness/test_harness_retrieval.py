from __future__ import annotations

import asyncio
import json
import random
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from eval_harness.errors import HarnessError
from eval_harness.retrievers import client as client_module
from eval_harness.retrievers.bm25 import Index, cached_index
from eval_harness.retrievers.building import build_index
from eval_harness.retrievers.client import Client, service_identity
from eval_harness.retrievers.opening import open_retriever, retriever_identity
from eval_harness.retrievers.passages import Passage, RetrieverError
from eval_harness.retrievers.server import Server, serving

TEXTS = {
    "a": '"Norway"\nNorway is a country in the north; its capital is Oslo.',
    "b": '"Paris"\nParis is the capital of France.',
    "c": '"Empty"\n',
    "d": '"Łódź"\nA city with ships.',
}


def write(path: Path, texts: dict[str, str]) -> Path:
    lines = [json.dumps({"id": id, "contents": text}) + "\n" for id, text in texts.items()]
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("index")
    build_index(write(folder / "corpus.jsonl", TEXTS), folder / "built")
    index = Index(folder / "built")
    yield index
    index.close()


@pytest.fixture(scope="module")
def server(index: Index) -> Any:
    with serving(index) as server:
        yield server


def post(server: Server, body: Any, path: str = "/retrieve") -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"{server.url}{path}", data=data, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def find(folder: Path, queries: list[str], topk: int) -> list[list[Passage]]:
    with closing(Index(folder)) as index:
        return index.search(queries, topk)


def ids(found: list[list[Passage]]) -> list[list[str]]:
    return [[passage.id for passage in passages] for passages in found]


def test_passages_that_share_a_word_are_found_best_first(index: Index) -> None:
    found = index.search(["capital of France", "Norway", "łódź", "the", "xyzzy", ""], 3)
    assert ids(found) == [["b", "a"], ["a"], ["d"], [], [], []]
    assert found[0][0] == Passage("b", TEXTS["b"], found[0][0].score)
    assert found[0][0].title == "Paris"
    assert found[0][0].text == "Paris is the capital of France."
    assert ids(index.search(["capital"], 1)) == [["b"]]


@pytest.mark.parametrize("shard", [1, 7, 40, 199, 200])
def test_shards_score_as_one_index_does(tmp_path: Path, shard: int) -> None:
    draw = random.Random(5)
    words = [f"word{n}" for n in range(60)]
    texts = {
        str(n): f'"t{n}"\n' + " ".join(draw.choices(words, range(60, 0, -1), k=draw.randint(1, 60)))
        for n in range(200)
    }
    corpus = write(tmp_path / "corpus.jsonl", texts)
    done: list[int] = []
    build_index(corpus, tmp_path / "whole")
    about = build_index(corpus, tmp_path / "parts", shard=shard, told=done.append)
    assert (about["shards"], done[-1]) == (-(-200 // shard), 200)
    queries = [" ".join(draw.choices(words, k=draw.randint(1, 6))) for _ in range(40)]
    whole, parts = (find(tmp_path / name, queries, 200) for name in ("whole", "parts"))
    for one, many in zip(whole, parts, strict=True):
        assert [p.id for p in many] == [p.id for p in one]
        assert [p.score for p in many] == pytest.approx([p.score for p in one], abs=2e-4)


def test_equal_scores_stand_in_corpus_order(tmp_path: Path) -> None:
    texts = {str(n): '"t"\nsame words here' for n in range(9)}
    build_index(write(tmp_path / "c.jsonl", texts), tmp_path / "i", shard=4)
    assert ids(find(tmp_path / "i", ["same"], 3)) == [["0", "1", "2"]]


def test_many_threads_search_at_once(index: Index) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda n: ids(index.search(["Oslo" if n % 2 else "ships"], 1)), range(200))
        )
    assert found == [[["d"]], [["a"]]] * 100


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (b'{"id": "a", "contents": "x"}\n{"id": "b"}\n', 2, "KeyError"),
        (b'{"id": "a", "contents": 3}\n', 1, "must be texts"),
        (b"\n", 1, "no passage"),
        (b"[" * 100_000, 1, "no passage"),
        (b"\x1f\x8b\x08rest", 1, "compressed"),
        (b'{"id": "a", "contents": "\\n"}\n', 0, "no passage with a word"),
        (b"", 0, "no passage with a word"),
    ],
)
def test_a_damaged_corpus_is_named_and_nothing_is_left(
    tmp_path: Path, text: bytes, line: int, words: str
) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_bytes(text)
    with pytest.raises(HarnessError, match=words) as caught:
        build_index(corpus, tmp_path / "index")
    assert caught.value.kind == "bad_corpus"
    assert caught.value.where == (f"{corpus}:{line}" if line else str(corpus))
    assert [path.name for path in tmp_path.iterdir()] == ["c.jsonl"]


def test_an_index_knows_its_corpus(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", TEXTS)
    build_index(corpus, tmp_path / "i")
    with pytest.raises(HarnessError, match="exists"):
        build_index(corpus, tmp_path / "i")
    corpus.touch()
    Index(tmp_path / "i").close()
    moved = corpus.rename(tmp_path / "moved.jsonl")
    Index(tmp_path / "i", moved).close()
    with pytest.raises(HarnessError, match="not the one that was indexed"):
        Index(tmp_path / "i")
    write(corpus, {**TEXTS, "a": TEXTS["a"].replace("Oslo", "Rome")})
    with pytest.raises(HarnessError, match="not the one that was indexed"):
        Index(tmp_path / "i")
    (tmp_path / "i" / "index.json").write_text('{"schema": "other"}')
    with pytest.raises(HarnessError, match="no index"):
        Index(tmp_path / "i")


def test_the_cache_is_keyed_by_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    here, there = (write(tmp_path / name, TEXTS) for name in ("one.jsonl", "two.jsonl"))
    with ThreadPoolExecutor(4) as pool:
        for index in pool.map(cached_index, [here] * 4):
            index.close()
    [made] = (tmp_path / "cache" / "eval_harness" / "bm25").iterdir()
    born = (made / "index.json").stat().st_mtime_ns
    here.unlink()
    index = cached_index(there)
    assert ids(index.search(["Oslo"], 1)) == [["a"]]
    index.close()
    assert (made / "index.json").stat().st_mtime_ns == born


def test_the_contract(server: Server) -> None:
    document = {"id": "a", "contents": TEXTS["a"]}
    status, body = post(server, {"queries": ["Oslo", "ships"], "topk": 1, "return_scores": True})
    assert status == 200
    assert [[hit["document"]["id"] for hit in hits] for hits in body["result"]] == [["a"], ["d"]]
    assert body["result"][0][0]["document"] == document
    assert body["result"][0][0]["score"] > 0
    for plain in ({"queries": ["Oslo", "Oslo"]}, {"queries": "Oslo", "topk": None}):
        count = 1 if isinstance(plain["queries"], str) else 2
        assert post(server, {**plain, "return_scores": False}) == (
            200,
            {"result": [[document]] * count},
        )


@pytest.mark.parametrize(
    "body", [b"{", b"[]", {}, {"queries": 3}, {"queries": ["x"], "topk": 0}, {"queries": [1]}]
)
def test_a_wrong_question_is_refused(server: Server, body: Any) -> None:
    assert post(server, body)[0] == 422
    assert post(server, {"queries": []}) == (200, {"result": []})
    assert post(server, {}, "/other")[0] == 404


def test_the_server_says_what_it_serves_and_to_whom(server: Server, index: Index) -> None:
    assert server.server_address[0] == "127.0.0.1"
    with urllib.request.urlopen(f"{server.url}/health", timeout=10) as answer:
        health = json.load(answer)
    assert health["index_sha256"] == index.about["index_sha256"]
    assert health["corpus_sha256"] == health["identity"]["corpus_sha256"]
    assert service_identity(server.url) == index.identity()


def test_a_client_finds_what_the_index_finds(server: Server, index: Index) -> None:
    async def go() -> list[list[Passage]]:
        retriever = open_retriever({}, Path(), server.url)
        assert (
            retriever.identity() == index.identity() == retriever_identity({}, Path(), server.url)
        )
        try:
            return await retriever.search(["capital", "Oslo \ud83d"], 2)
        finally:
            await retriever.close()

    assert asyncio.run(go()) == index.search(["capital", "Oslo"], 2)
    assert index.search(["Oslo \ud83d"], 2) == index.search(["Oslo"], 2)


class Scripted:
    """A service that answers as told, in order, and then with the last."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.seen: list[Any] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                outer.seen.append(json.loads(self.rfile.read(length)))
                status, body = answers[min(len(outer.seen), len(answers)) - 1]
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://user:secret@127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Scripted:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def ask(url: str) -> list[list[Passage]]:
    async def go() -> list[list[Passage]]:
        client = Client(url, service_identity(url))
        try:
            return await client.search(["q"], 2)
        finally:
            await client.close()

    return asyncio.run(go())


FINE = b'{"result": [[{"document": {"id": 1, "contents": "t"}, "score": 2}]]}'


def test_a_busy_service_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_PAUSE", 0.001)
    with Scripted((503, b""), (429, b""), (200, b"<html>"), (200, FINE)) as service:
        assert ask(service.url) == [[Passage("1", "t", 2.0)]]
        assert service.seen == [{"queries": ["q"], "topk": 2, "return_scores": True}] * 4


@pytest.mark.parametrize(
    ("status", "body", "words", "asked"),
    [
        (500, b"", "HTTP 500", client_module.ATTEMPTS),
        (404, b"", "HTTP 404", 1),
        (200, b'{"result": [[], []]}', "2 results for 1 queries", 1),
        (200, b'{"result": [[{"id": "1"}]]}', "no /retrieve answer", 1),
        (200, b"[]", "no /retrieve answer", 1),
    ],
)
def test_a_broken_service_is_told_without_its_password(
    monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, words: str, asked: int
) -> None:
    monkeypatch.setattr(client_module, "_PAUSE", 0.001)
    with Scripted((status, body)) as service, pytest.raises(RetrieverError, match=words) as caught:
        ask(service.url)
    assert len(service.seen) == asked
    assert "secret" not in str(caught.value)


def test_a_service_that_says_nothing_of_its_corpus_has_an_identity_of_its_own() -> None:
    with Scripted((404, b"")) as one, Scripted((404, b"")) as other:
        first, second = service_identity(one.url), service_identity(other.url)
    assert first["corpus_sha256"].startswith("unknown corpus at http://127.0.0.1")
    assert first != second
    assert "secret" not in json.dumps(first)
    with pytest.raises(HarnessError, match="no retriever answers") as caught:
        service_identity("http://user:secret@127.0.0.1:9")
    assert "secret" not in caught.value.where


def test_the_suites_corpus_is_checked_before_it_is_searched(tmp_path: Path) -> None:
    write(tmp_path / "c.jsonl", TEXTS)
    for table, kind in (
        ({}, "no_retriever"),
        ({"corpus": "c.jsonl", "corpus_sha256": "0" * 64}, "bad_corpus"),
        ({"corpus": "../c.jsonl", "corpus_sha256": "0" * 64}, "bad_corpus"),
        ({"corpus": "none.jsonl", "corpus_sha256": "0" * 64}, "bad_corpus"),
    ):
        with pytest.raises(HarnessError) as caught:
            open_retriever(table, tmp_path)
        assert caught.value.kind == kind


@pytest.mark.parametrize("url", ["u:S3CRET@h:1", "http://u:S3CRET@[::1", "http://u:S3/CRET@h:1"])
def test_a_mistyped_address_of_a_retriever_shows_no_password(url: str) -> None:
    with pytest.raises(HarnessError, match="no address of a retriever") as caught:
        service_identity(url)
    assert caught.value.kind == "no_retriever"
    assert "CRET" not in str(vars(caught.value))
