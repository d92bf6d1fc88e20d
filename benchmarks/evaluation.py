"""The harness against a server with 50 ms of latency in a process of its own, and without one.

Rates are of whole requests with their raw records written, between the server's first request and
its last answer. Peers ask the same questions of the same server in the same run: a bare httpx
client, and lm-eval where LMEVAL_PYTHON names an interpreter that has it.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from _stub import TEXT
from common import emit, quick

from eval_harness.agents.making import make_agent
from eval_harness.backends.openai import OpenAIBackend
from eval_harness.chat import Reply, Request
from eval_harness.record import SAMPLES
from eval_harness.runner import opened, run, scored
from eval_harness.suite import load_suite
from eval_harness.suite_model import Suite

LATENCY = 0.05
HERE = Path(__file__).parent


class Rate(NamedTuple):
    """Requests a second; seconds that the server took for each; microseconds of our own CPU."""

    rate: float
    pause: float
    cpu: float = 0.0


class Stub(NamedTuple):
    """The server."""

    url: str

    def moments(self) -> dict[str, float]:
        """First request, last answer and number since the last call."""
        import httpx

        found: dict[str, float] = httpx.get(f"{self.url}/moments", trust_env=False).json()
        return found

    def rate(self, n: int) -> Rate:
        """Rate of the requests since the last call; `n` must have come."""
        moments = self.moments()
        if moments["n"] != n:
            raise SystemExit(f"{moments['n']} requests came instead of {n}")
        return Rate(n / (moments["last"] - moments["first"]), moments["pauses"] / n)


@contextmanager
def stub() -> Iterator[Stub]:
    """Start the server, and end it."""
    argv = [sys.executable, str(HERE / "_stub.py"), str(LATENCY)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield Stub(f"http://127.0.0.1:{int(server.stdout.readline())}/v1")
        finally:
            server.kill()


def questions(n: int) -> Suite:
    """short_qa, each question as often as to give about `n` samples."""
    suite = load_suite("short_qa")
    return suite.with_options(trials=max(1, round(n / len(suite.items))))


def ours(server: Stub, suite: Suite, in_flight: int) -> Rate:
    """The runner."""
    backend = OpenAIBackend(server.url, "stub", concurrency=in_flight, trust_env=False)
    begin = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        ask(suite, backend, Path(folder))
    cpu = (time.process_time() - begin) * 1e6 / suite.size
    return server.rate(suite.size)._replace(cpu=cpu)


def ask(suite: Suite, backend: Any, folder: Path) -> None:
    """Run the suite."""
    about = {"protocol": {}, "plan_id": ""}
    run(suite, backend, make_agent(suite), folder, seed=0, about=about, progress=_silent)


def bare(server: Stub, suite: Suite, in_flight: int) -> float:
    """Rate of an httpx client that sends the same bodies and parses the answers."""
    import httpx

    sampling = {"max_tokens": 16, "temperature": 0.0, "seed": 1}
    bodies = iter(
        [
            {"model": "stub", "messages": suite.messages(suite.at(place)[0]), **sampling}
            for place in range(suite.size)
        ]
    )

    async def worker(client: httpx.AsyncClient) -> None:
        for body in bodies:
            (await client.post(f"{server.url}/chat/completions", json=body)).json()

    async def all_of_them() -> None:
        limits = httpx.Limits(max_connections=in_flight, max_keepalive_connections=in_flight)
        async with httpx.AsyncClient(limits=limits, timeout=60, trust_env=False) as client:
            await asyncio.gather(*(worker(client) for _ in range(in_flight)))

    asyncio.run(all_of_them())
    return server.rate(suite.size).rate


def lm_eval(server: Stub, suite: Suite, in_flight: int, python: str) -> float:
    """Rate of lm-eval's chat backend on a task of the same questions."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chats = [suite.messages(suite.at(place)[0])[0] for place in range(suite.size)]
        lines = [json.dumps({"q": chat["content"], "a": TEXT}) + "\n" for chat in chats]
        (folder / "data.jsonl").write_text("".join(lines))
        (folder / "task.yaml").write_text(
            "task: same_questions\ndataset_path: json\ndataset_kwargs:\n  data_files:\n"
            f"    test: {folder / 'data.jsonl'}\ntest_split: test\noutput_type: generate_until\n"
            'doc_to_text: "{{q}}"\ndoc_to_target: "{{a}}"\n'
            "generation_kwargs: {max_gen_toks: 16, temperature: 0.0, until: []}\n"
            "metric_list: [{metric: exact_match}]\n"
        )
        args = f"model=stub,base_url={server.url}/chat/completions,num_concurrent={in_flight}"
        argv = [python, "-m", "lm_eval", "run", "--model", "local-chat-completions"]
        argv += ["--model_args", args, "--tasks", "same_questions", "--apply_chat_template"]
        argv += ["--include_path", name, "--output_path", f"{name}/out", "--log_samples"]
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": f"{name}/cache"}
        done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
    return server.rate(suite.size).rate


def rates(server: Stub) -> None:
    """Requests a second at 32 and 64 in flight."""
    suite = questions(1280 if quick() else 6400)
    shape = {"requests": suite.size, "latency": LATENCY, "rounds": 3}
    shares = []
    for _ in range(3):
        found = ours(server, suite, 32)
        shares.append((found.rate * found.pause / 32, found))
    share, found = max(shares)
    # The limit is that of the pauses as the server made them: its timer is late by a millisecond.
    emit("runner: rate at 32 in flight of the limit", share, "ratio",
         {"limit/s": round(32 / found.pause), "limit/s at 50 ms": 640}, 0.95, share >= 0.95,
         rate=round(found.rate), cpu_us=round(found.cpu), **shape)  # fmt: skip
    pairs = [(ours(server, suite, 64), bare(server, suite, 64)) for _ in range(3)]
    rate, peer = max(own.rate for own, _ in pairs), max(other for _, other in pairs)
    emit("runner: rate at 64 in flight of bare httpx", rate / peer, "ratio", {"httpx/s": peer},
         0.85, rate / peer >= 0.85, rate=round(rate), **shape)  # fmt: skip
    python = os.environ.get("LMEVAL_PYTHON", "")
    if not python:
        print("lm-eval: not measured, LMEVAL_PYTHON names no interpreter", file=sys.stderr)
        return
    rounds = 1 if quick() else 3
    theirs = max(lm_eval(server, suite, 64, python) for _ in range(rounds))
    emit("runner: rate at 64 in flight of lm-eval", rate / theirs, "ratio", {"lm-eval/s": theirs},
         1.0, rate >= theirs, rate=round(rate), **shape | {"rounds": rounds})  # fmt: skip


def first_request(server: Stub) -> None:
    """Seconds from the command to its first request: process start, plan and child included."""
    taken = []
    for _ in range(2 if quick() else 5):
        with tempfile.TemporaryDirectory() as folder:
            argv = [str(Path(sys.executable).with_name("hubtools")), "evaluate"]
            argv += ["--endpoint", server.url, "--model", "stub", "-o", folder, "-q"]
            begin = time.monotonic()
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
            taken.append(server.moments()["first"] - begin)
    best = min(taken)
    emit("evaluate: start to first request", best, "s", {"all": [round(t, 2) for t in taken]}, 3.0,
         best <= 3.0, command="hubtools evaluate --endpoint URL --model stub")  # fmt: skip


class Echo:
    """A backend without a server: answers at once."""

    lockstep, concurrency = False, 64

    def describe(self) -> dict[str, Any]:
        """Its name."""
        return {"backend": "echo"}

    async def ask_all(self, requests: Sequence[Request]) -> list[Reply]:
        """The same text each time."""
        raw = {"model": "stub", "choices": [{"message": {"content": TEXT}}]}
        return [Reply(TEXT, "stop", 70, 12, raw=raw) for _ in requests]

    async def close(self) -> None:
        """Nothing."""


def scoring() -> None:
    """Seconds from responses to record."""
    suite = questions(12_800 if quick() else 100_000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ask(suite, Echo(), folder)
        with opened(suite, folder) as journal:
            for _ in journal.recover():
                pass
            begin, cpu = time.perf_counter(), time.process_time()
            scored(suite, journal, folder, {"suite": suite.identity()})
            cpu = (time.process_time() - cpu) * 100_000 / suite.size
            seconds = (time.perf_counter() - begin) * 100_000 / suite.size
        size = (folder / SAMPLES).stat().st_size
    emit("scoring: 100k samples", seconds, "s", {}, 5.0, seconds <= 5.0,
         cpu=round(cpu, 2), samples=suite.size, metrics=len(suite.metrics),
         samples_bytes=size)  # fmt: skip


def memory() -> None:
    """Peak memory at ten times the samples."""
    few, many = (1_280, 12_800) if quick() else (10_000, 100_000)
    peaks = []
    for n in (few, many):
        argv = [sys.executable, str(Path(__file__)), "--peak", str(n)]
        peaks.append(float(subprocess.run(argv, check=True, capture_output=True).stdout))
    growth = peaks[1] / peaks[0]
    emit("runner and scoring: peak memory at ten times the samples", growth, "ratio",
         {"MB": [round(peak) for peak in peaks]}, 1.2, growth <= 1.2,
         samples=[few, many])  # fmt: skip


def peak(n: int) -> None:
    """Run and score `n` samples, print the peak memory of this process in MB."""
    with tempfile.TemporaryDirectory() as folder:
        ask(questions(n), Echo(), Path(folder))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _silent(label: str, done: int, total: int | None, unit: str) -> None:
    pass


def main() -> None:
    """Measure everything."""
    if sys.argv[1:2] == ["--peak"]:
        peak(int(sys.argv[2]))
        return
    with stub() as server:
        rates(server)
        first_request(server)
    scoring()
    memory()


if __name__ == "__main__":
    main()
