"""Servers to talk to: one that answers what a test dictates, and the embedded Hub."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hub_servers import Canned


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
