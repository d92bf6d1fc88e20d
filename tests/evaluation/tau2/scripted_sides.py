"""A scripted server that plays agent and customer of τ²-bench, with faults that a test decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from loopback import listening

from hubtools.evaluation.tau2.floor import answer

Fault = Callable[[Mapping[str, Any]], tuple[int, Mapping[str, Any]] | None]
"""Request body to status and JSON answer, or None for the script's own."""

NO_FAULT: Fault = lambda asked: None  # noqa: E731
USER_OF_2 = "noah_muller_9847"
USER_OF_6 = "sophia_taylor_9065"


def tells(message: Mapping[str, Any], model: str) -> dict[str, Any]:
    return {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "system_fingerprint": "fp-1",
        "choices": [{"index": 0, "message": dict(message), "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }


@contextmanager
def sides(fault: Fault = NO_FAULT) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield base URL and requests. It answers as `NAME-2026`, whatever `NAME` was asked for."""
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            seen.append({"body": asked, "headers": dict(self.headers)})
            name = asked["model"]
            usual = tells(answer(name, asked["messages"]), f"{name}-2026")
            status, body = fault(asked) or (200, usual)
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    with listening(Handler) as url:
        yield url, seen
