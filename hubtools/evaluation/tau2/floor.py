"""The floor of τ²-bench airline: what an agent scores that looks at the profile and refuses.

It is measured through the same harness, with a scripted customer who takes no for an answer: a
good part of the tasks is passed by changing nothing.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from hubtools.evaluation.protocol import POLICY, protocol_id
from hubtools.evaluation.runs import finished, fresh, record_of, unfinished
from hubtools.evaluation.tau2.airline import SUITE, TEST_IDS, Bench
from hubtools.evaluation.tau2.environment import Installed, tau2_environment
from hubtools.evaluation.tau2.grid import run_grid
from hubtools.evaluation.tau2.planning import MAX_ERRORS, MAX_STEPS, protocol_of
from hubtools.evaluation.tau2.record import GRID, grid_samples, write_tau2
from hubtools.files import disk_error, locked, write_json
from hubtools.progress import Progress, labelled, silent

MEMBER = "floor: refuses everything"
REFUSAL = "I have looked at your profile. I am sorry, but our policy does not allow that."

_AGENT, _USER = "policy-agent", "policy-user"
_USER_ID = re.compile(r"user id (?:is|:)\s*[\"']?(\w+)", re.IGNORECASE)


def run_floor(
    out: Path,
    *,
    log: Path,
    limit: int | None = None,
    sample_seed: int = 0,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Measure the floor, or find it measured.

    Args:
        out: the append-only folder of runs.
        log: for what tau2 says.
        limit: tasks of each category, drawn with `sample_seed`, as for the run it stands beside.
        sample_seed: likewise.
        progress: told the number of finished conversations.

    Returns:
        The run's record, and under `path` the file that holds it.

    Raises:
        EnvironmentFailure: HT465, HT466 no τ²-bench; HT901, HT903, HT904.
    """
    installed = tau2_environment()
    bench = installed.bench(TEST_IDS).drawn(limit, sample_seed)
    runs = out / SUITE
    with locked(runs / ".lock", f"the folder of runs {runs.name}"):
        return record_of(measured_floor(runs, installed, bench, log=log, progress=progress))


def measured_floor(
    runs: Path, installed: Installed, bench: Bench, *, log: Path, progress: Progress = silent
) -> Path:
    """Folder of the floor's run among `runs`, which the caller has locked.

    Raises:
        EnvironmentFailure: HT901, HT904.
    """
    protocol = protocol_of(
        bench,
        installed.versions,
        trials=1,
        agent={"kind": "reads the profile, then refuses", "max_steps": MAX_STEPS},
        user={"kind": "scripted: gives the user id, ends after the first refusal"},
        backend=POLICY,
        engine={},
    )
    about = {
        "plan_id": protocol_id(protocol),
        "member": MEMBER,
        "weights": "",
        "requested": "",
        "engine": {},
        "seed": 0,
    }
    if (known := finished(runs, about)) is not None:
        return known
    folder = unfinished(runs, about) or fresh(runs)
    try:
        (folder / GRID).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, folder) from error
    write_json(folder / "about.json", about)
    with _policy() as url:
        job = {
            "tasks": list(bench.tasks),
            "trials": 1,
            "seed": 0,
            "max_steps": MAX_STEPS,
            "max_errors": MAX_ERRORS,
            "concurrency": 4,
            "agent": {"url": url, "model": _AGENT, "arguments": {}},
            "user": {"url": url, "model": _USER, "arguments": {}},
        }
        shown = labelled(progress, "measure the floor")
        run_grid(installed, folder, job, log=log, progress=shown)
    write_tau2(folder, grid_samples(folder, bench, 1, {}), protocol, about)
    return folder


def answer(model: str, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The message of the scripted agent or customer."""
    said = [str(m["content"]) for m in messages if m["role"] == "user" and m.get("content")]
    if model == _AGENT:
        found = _USER_ID.search("\n".join(said))
        if found and not any(m["role"] == "tool" for m in messages):
            return _calls("get_user_details", {"user_id": found[1]})
        return {"role": "assistant", "content": REFUSAL}
    if any(REFUSAL in text for text in said):
        return {"role": "assistant", "content": "I see, thank you. ###STOP###"}
    found = _USER_ID.search(str(messages[0]["content"]))
    who = f" My user id is {found[1]}." if found else ""
    return {"role": "assistant", "content": f"Hello, I need help with a reservation.{who}"}


def _calls(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{name}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@contextmanager
def _policy() -> Iterator[str]:
    """Both scripts behind one chat-completions server on loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = answer(asked["model"], asked["messages"])
        finish = "tool_calls" if "tool_calls" in message else "stop"
        body = {
            "id": "policy",
            "object": "chat.completion",
            "created": 0,
            "model": asked["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""
