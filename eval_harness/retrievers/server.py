"""Serves an index on loopback behind Search-R1's `/retrieve`.

`POST /retrieve {"queries": [..] or "..", "topk": n or null, "return_scores": bool}` answers
`{"result": [[{"document": {"id", "contents"}, "score"}, ..] or plain documents, ..]}`;
`GET /health` answers with the digests of corpus and index.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from eval_harness.retrievers.bm25 import Index
from eval_harness.retrievers.passages import Passage

TOPK = 3
_MOST = 16 << 20


class Server(ThreadingHTTPServer):
    """`serve_forever` answers until `shutdown`; there is no authentication, so loopback only.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, index: Index, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.index = index

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving(index: Index, port: int = 0) -> Iterator[Server]:
    """A server in a thread, for the time of the block."""
    with Server(index, port) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        """`/health`."""
        index = self.server.index
        if self.path != "/health":
            return self._answer(404, {"detail": "no such path"})
        kept = ("passages", "corpus_sha256", "index_sha256")
        about = {name: index.about[name] for name in kept}
        return self._answer(200, {"identity": index.identity(), "topk": TOPK, **about})

    def do_POST(self) -> None:
        """`/retrieve`."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _MOST:
            self.close_connection = True
            return self._answer(411, {"detail": "a length below 16 MiB is needed"})
        body = self.rfile.read(int(length))
        if self.path != "/retrieve":
            return self._answer(404, {"detail": "no such path"})
        try:
            queries, topk, scores = _asked(json.loads(body))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            return self._answer(422, {"detail": f"{type(error).__name__}: {error}"})
        found = self.server.index.search(queries, topk)
        return self._answer(200, {"result": [[_hit(p, scores) for p in hits] for hits in found]})

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _answer(self, status: int, value: Mapping[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _asked(body: Any) -> tuple[list[str], int, bool]:
    queries = body["queries"]
    queries = [queries] if isinstance(queries, str) else queries
    topk = TOPK if body.get("topk") is None else body["topk"]
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise TypeError("queries must be a text or a list of texts")
    if not isinstance(topk, int) or isinstance(topk, bool) or topk < 1:
        raise TypeError("topk must be a positive number")
    return queries, topk, bool(body.get("return_scores", False))


def _hit(passage: Passage, scores: bool) -> dict[str, Any]:
    document = {"id": passage.id, "contents": passage.contents}
    return {"document": document, "score": passage.score} if scores else document
