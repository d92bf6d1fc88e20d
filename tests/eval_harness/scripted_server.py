"""An OpenAI-compatible server on loopback whose answers and faults a test decides."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from loopback import listening

CUT = 0
"""A status at which the connection is cut without an answer."""

Answer = tuple[int, dict[str, str], bytes]


def says(text: Any, **more: Any) -> Answer:
    """A normal completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    body = {
        "model": "served-name",
        "system_fingerprint": "fp-1",
        "choices": [{**choice, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
        **more,
    }
    return 200, {}, json.dumps(body).encode()


def fails(status: int, body: str = "no", **headers: str) -> Answer:
    """An HTTP error."""
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, body.encode()


@contextmanager
def serving(
    script: Callable[[str, int, dict[str, str]], Answer],
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield base URL and the list of requests; `script` gets question, attempt and headers."""
    requests: list[dict[str, Any]] = []
    attempts: dict[str, int] = {}
    guard = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            chat = self.path == "/v1/chat/completions"
            question = body["messages"][-1]["content"] if chat else body["prompt"]
            with guard:
                requests.append(body)
                attempts[question] = attempts.get(question, 0) + 1
                attempt = attempts[question]
            status, headers, data = script(question, attempt, dict(self.headers))
            if status == CUT:
                self.close_connection = True
                return
            if self.path not in ("/v1/chat/completions", "/v1/completions"):
                status, headers, data = fails(404, "no such path")
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    with listening(Handler) as url:
        yield url, requests
