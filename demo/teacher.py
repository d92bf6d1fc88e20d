"""The teacher: the base model behind a real OpenAI-compatible server, and everything it answered.

Kept as a distillation project would keep it: the raw responses beside their requests, what the
server says it serves, and the digest of the weights it was started with.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import zstandard

from demo import base
from demo.questions import INSTRUCTION, evaluated_items, overlap, questions
from demo.state import DemoError, Made, State, shown
from hubtools.digests import sha256_json
from hubtools.files import write_atomic, write_json
from hubtools.progress import Progress, silent

FOLDER = "teacher"
LOG = "responses.jsonl.zst"
SERVED = "served.json"
"""Below the family's folder."""
VERSION = 1


def collect(state: State, family: Path, weights: str) -> dict[str, Any]:
    """Ask every question; `family/teacher/` then holds the raw log and the server's model list.

    Args:
        state: where the demo lives.
        family: the family's folder.
        weights: digest of the base's weights.

    Returns:
        `{responses}`: how many there are.

    Raises:
        DemoError: a question is about something that the evaluation asks, or the server fails.
    """
    asked = questions()
    shared = overlap(asked, evaluated_items())
    if shared:
        raise DemoError("training questions share something with the evaluation: " + shared[0])
    inputs = {
        "weights": weights,
        "prompts": sha256_json([INSTRUCTION, [question.prompt() for question in asked]]),
        "code": VERSION,
    }

    def work() -> Made:
        folder = family / FOLDER
        with state.output.progress() as progress, _serving(state, progress) as client:
            models = client.get("/v1/models").raise_for_status().json()
            lines: list[dict[str, Any]] = []
            for question in asked:
                progress("ask the teacher", len(lines), len(asked), "questions")
                lines.append(_ask(client, f"{question.prompt()} {INSTRUCTION}"))
            progress("ask the teacher", len(lines), len(asked), "questions")
        _write_log(folder / LOG, lines)
        write_json(folder / SERVED, models)
        return sorted(folder.iterdir()), {"responses": len(lines)}

    return state.once("teacher", "teacher responses from a local server", inputs, work)


def read_log(file: Path) -> list[dict[str, Any]]:
    """The `{role, request, response}` objects of a log."""
    with zstandard.open(file, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def _write_log(file: Path, lines: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    write_atomic(file, zstandard.ZstdCompressor().compress(text.encode()))


def _ask(client: httpx.Client, prompt: str) -> dict[str, Any]:
    request = {
        "model": base.REPO,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": 32,
    }
    answer = client.post("/v1/chat/completions", json=request).raise_for_status()
    return {"role": "teacher", "request": request, "response": answer.json()}


@contextmanager
def _serving(state: State, progress: Progress = silent) -> Iterator[httpx.Client]:
    """The server, started where the base can be found under its public name."""
    shelf, log = state.root / "serve", state.log("teacher")
    place = shelf / base.REPO
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(os.path.relpath(state.root / base.FOLDER, place.parent))
    log.parent.mkdir(parents=True, exist_ok=True)
    port, starting = _free_port(), "start the teacher"
    # Two CPU cores compute in float32 faster than in bfloat16.
    options = ["--host=127.0.0.1", f"--port={port}", "--device=cpu", "--dtype=float32"]
    checkout = Path(__file__).resolve().parents[1]
    with log.open("ab") as story:
        server = subprocess.Popen(
            [sys.executable, "-m", "demo.server", base.REPO, *options],
            cwd=shelf,
            stdin=subprocess.PIPE,
            stdout=story,
            stderr=story,
            env={**os.environ, **state.env(HF_HUB_OFFLINE="1", PYTHONPATH=str(checkout))},
        )
        try:
            with httpx.Client(
                base_url=f"http://127.0.0.1:{port}", timeout=300, trust_env=False
            ) as client:
                progress(starting, 0, 1, "servers")
                _wait(server, client, log)
                progress(starting, 1, 1, "servers")
                yield client
        except httpx.HTTPError as error:
            raise DemoError(f"the teacher's server failed ({error}); see {shown(log)}") from error
        finally:
            assert server.stdin is not None
            server.stdin.close()
            server.terminate()
            server.wait()


def _wait(server: subprocess.Popen[bytes], client: httpx.Client, log: Path) -> None:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if server.poll() is not None:
            raise DemoError(f"the teacher's server ended before it was ready; see {shown(log)}")
        try:
            if client.get("/health", timeout=5).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    raise DemoError(f"the teacher's server was not ready within 5 minutes; see {shown(log)}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
