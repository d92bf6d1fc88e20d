"""Logs as a script writes them with OpenAI's own client, talking to a scripted server."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from log_lines import chunk, response
from log_samples import RESPONSES, RESPONSES_EVENTS, events

from hubtools.logs.read import read_log
from hubtools.logs.records import Record

openai = pytest.importorskip("openai", reason="OpenAI's client is not installed")


class Scripted(BaseHTTPRequestHandler):
    """Answers as the API does, whatever is asked."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        responses = self.path.endswith("/responses")
        if asked.get("stream"):
            kind = "text/event-stream"
            parts = (
                RESPONSES_EVENTS if responses else [chunk("c-abc", ""), chunk("c-abc", "model-x")]
            )
            body = events(*parts)
        else:
            kind = "application/json"
            body = json.dumps(RESPONSES if responses else response("chatcmpl-abcdef"))
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Scripted) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        with openai.OpenAI(base_url=url, api_key="none") as client:
            yield client
        server.shutdown()
        thread.join()


def logged(tmp_path: Path, *values: Any) -> list[Record]:
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(value) + "\n" for value in values))
    found = list(read_log(log, "log"))
    assert all(isinstance(item, Record) for item in found), found
    return found


def test_chat_completions(client: Any, tmp_path: Path) -> None:
    asked = {"model": "alias-x", "messages": [{"role": "user", "content": "Hi"}]}
    whole = client.chat.completions.create(**asked).model_dump(mode="json")
    with client.chat.completions.create(**asked, stream=True) as stream:
        parts = [part.model_dump(mode="json") for part in stream]
    found = logged(
        tmp_path,
        {"request": asked, "response": whole, "role": "agent"},
        {"request": {**asked, "stream": True}, "response": parts, "role": "agent"},
    )
    assert [(item.requested, item.reported, item.id, item.grade) for item in found] == [
        ("alias-x", "model-x", "chatcmpl-abcdef", "B"),
        ("alias-x", "model-x", "c-abc", "B"),
    ]


def test_responses(client: Any, tmp_path: Path) -> None:
    asked = {"model": "alias-x", "input": "Hi"}
    whole = client.responses.create(**asked).model_dump(mode="json", warnings=False)
    with client.responses.create(**asked, stream=True) as stream:
        parts = [part.model_dump(mode="json", warnings=False) for part in stream]
    (one, two) = logged(
        tmp_path, {"request": asked, "response": whole}, {"request": asked, "response": parts}
    )
    assert one.reported == two.reported == "gpt-x-2025-04-14"
    assert one.id == two.id == "resp_68600000aa"
    assert (one.created, one.piece, two.piece) == (1751119980.0, False, True)
