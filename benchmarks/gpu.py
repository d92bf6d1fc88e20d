"""Tokens per second of the agent loop of `sr1_7bench`, against `vllm bench serve`, on one GPU.

The model has the shape of Qwen3-4B (with a smaller vocabulary, that of the tokenizer at hand) and
dummy weights, so what it writes means nothing: it has no end-of-text token, every answer takes all
its tokens, and a scripted search is appended to each, so that all turns happen. All else is real:
runner, records, agent, BM25 over the fixture's corpus. `vllm bench serve` then sends as many
requests with the same mean lengths to the same server. Nothing is taken from the prefix cache,
which would help us alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from common import emit

from eval_harness.agents.making import make_agent
from eval_harness.backends.openai import OpenAIBackend
from eval_harness.chat import Agent, Ask, Message, Outcome, Reply, Request
from eval_harness.retrievers.opening import open_retriever
from eval_harness.runner import run
from eval_harness.suite import load_suite
from hubtools.errors import HubtoolsError
from hubtools.evaluation.engine_environment import engine_python
from hubtools.evaluation.serving import Server, serving
from hubtools.evaluation.spec import Engine, Target

TARGET = 0.9
TRIALS = {64: 6, 256: 12, 8: 1}
"""Concurrency → trials of the 42 questions: close below whole multiples of it."""

OPTIONS = ("--load-format", "dummy", "--no-enable-prefix-caching", "--stream-interval", "16")
"""`vllm bench serve` streams and we do not: in few pieces, so that it loses nothing by it."""

ABOUT = {"protocol": {"harness": "benchmarks/gpu.py"}, "member": "shape", "weights": ""}

QWEN3_4B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000},
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2} | {
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
}
_BENCH = (
    "from vllm.benchmarks.serve import add_cli_args, main;"
    "from vllm.utils.argparse_utils import FlexibleArgumentParser;"
    "parser = FlexibleArgumentParser(); add_cli_args(parser); main(parser.parse_args())"
)


def shaped_model(folder: Path, tokenizer: Path, shape: dict[str, Any]) -> Path:
    """A checkpoint without weights: a configuration, and a tokenizer that never ends a text."""
    folder.mkdir()
    shutil.copy(tokenizer / "tokenizer.json", folder)
    shutil.copy(tokenizer / "chat_template.jinja", folder)
    words = json.loads((folder / "tokenizer.json").read_bytes())
    size = len(
        words["model"]["vocab"].keys() | {token["content"] for token in words["added_tokens"]}
    )
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 40960}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    shape = {**shape, "vocab_size": size, "eos_token_id": None, "bos_token_id": None}
    (folder / "config.json").write_text(json.dumps(shape))
    return folder


@dataclass
class Searching:
    """The suite's agent, with a search appended to whatever the model says; notes all lengths."""

    agent: Agent
    prompts: list[int] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def identity(self) -> dict[str, Any]:
        """That of the agent, marked."""
        return {**self.agent.identity(), "scripted": True}

    async def run(self, chat: Sequence[Message], ask: Ask, *, seed: int) -> Outcome:
        """As the agent does."""
        question = chat[-1]["content"].rpartition("Question: ")[2]

        async def asked(request: Request) -> Reply:
            reply = await ask(request)
            if reply.failure or reply.text is None:
                self.failures.append(reply.failure)
                return reply
            self.prompts.append(reply.prompt_tokens or 0)
            self.answers.append(reply.completion_tokens or 0)
            query = f"{question} {request.messages[-1]['content'][-60:]}"
            return replace(reply, text=f"{reply.text}<search>{query}</search>", finish="stop")

        return await self.agent.run(chat, asked, seed=seed)

    async def close(self) -> None:
        """Close the agent."""
        await self.agent.close()


@dataclass(frozen=True)
class Loop:
    """What the agent loop did: requests, mean lengths in tokens, written tokens per second."""

    requests: int
    prompt: int
    answer: int
    rate: float
    seconds: float


def bench(
    server: Server, python: Path, model: Path, loop: Loop, concurrency: int
) -> dict[str, Any]:
    """`vllm bench serve` with as many requests of the same lengths; its own results."""
    base = server.url.removesuffix("/v1")
    with tempfile.TemporaryDirectory() as folder:
        argv = [str(python), "-c", _BENCH, "--backend", "openai-chat", "--base-url", base]
        argv += ["--endpoint", "/v1/chat/completions", "--model", str(model)]
        argv += ["--served-model-name", server.served_name, "--dataset-name", "random"]
        argv += ["--random-input-len", str(loop.prompt), "--random-output-len", str(loop.answer)]
        argv += ["--num-prompts", str(loop.requests), "--max-concurrency", str(concurrency)]
        argv += ["--temperature", "0", "--disable-tqdm", "--seed", "1"]
        argv += ["--save-result", "--result-dir", folder, "--result-filename", "result.json"]
        done = subprocess.run(argv, capture_output=True, text=True, cwd=folder)
        if done.returncode:
            raise SystemExit(done.stdout[-2000:] + done.stderr[-4000:])
        result: dict[str, Any] = json.loads(Path(folder, "result.json").read_bytes())
        return result


def agent_loop(server: Server, concurrency: int, trials: int) -> Loop:
    """A whole run, scored and written to disk, timed from its first request to its record."""
    suite = load_suite("sr1_7bench-fixture").with_options(trials=trials)
    searching = Searching(make_agent(suite, open_retriever(suite.retriever, suite.base)))
    backend = OpenAIBackend(
        server.url, server.served_name, concurrency=concurrency, trust_env=False
    )
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        run(suite, backend, searching, Path(folder), seed=0, about=ABOUT, progress=lambda *_: None)
        seconds = time.perf_counter() - begin
    if searching.failures:
        raise SystemExit(f"{len(searching.failures)} calls failed: {searching.failures[0]}")
    prompt, answer = (round(statistics.mean(n)) for n in (searching.prompts, searching.answers))
    rate = sum(searching.answers) / seconds
    return Loop(len(searching.answers), prompt, answer, rate, seconds)


def frame(server: Server) -> int:
    """Tokens that the chat template adds to a prompt of one message."""
    ask = Request([{"role": "user", "content": "a"}], max_tokens=1)
    backend = OpenAIBackend(server.url, server.served_name, concurrency=1, trust_env=False)

    async def asked() -> int:
        [reply] = await backend.ask_all([ask])
        await backend.close()
        return (reply.prompt_tokens or 1) - 1

    return asyncio.run(asked())


def measure(server: Server, python: Path, model: Path, concurrency: int, gpu: str) -> None:
    """One line: ours against theirs at `concurrency`."""
    ours = agent_loop(server, concurrency, TRIALS[concurrency])
    theirs = bench(
        server, python, model, replace(ours, prompt=ours.prompt - frame(server)), concurrency
    )
    ratio = ours.rate / theirs["output_throughput"]
    emit(
        f"agent loop: tokens per second at {concurrency} samples in flight",
        ratio,
        "times vllm bench serve",
        {"vllm bench serve, tokens/s": round(theirs["output_throughput"])},
        TARGET,
        ratio >= TARGET,
        tokens_per_second=round(ours.rate),
        requests=ours.requests,
        seconds={"ours": round(ours.seconds, 1), "theirs": round(theirs["duration"], 1)},
        mean_prompt={
            "ours": ours.prompt,
            "theirs": round(theirs["total_input_tokens"] / ours.requests),
        },
        mean_answer={
            "ours": ours.answer,
            "theirs": round(theirs["total_output_tokens"] / ours.requests),
        },
        failed=theirs["failed"],
        gpu=gpu,
        engine=dict(server.describe),
    )


def main() -> None:
    """Start the server, measure at each concurrency; a line that says why when there is no GPU."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="accepted; nothing is quick here")
    parser.add_argument(
        "--tokenizer", type=Path, help="folder with tokenizer.json and chat template"
    )
    parser.add_argument("--concurrency", type=int, nargs="*", default=[64, 256])
    parser.add_argument("--rehearse", action="store_true", help="a tiny model on CPU: no figures")
    options = parser.parse_args()
    gpu = "none" if options.rehearse else gpu_name()
    if not gpu or options.tokenizer is None:
        reason = "there is no GPU" if not gpu else "no --tokenizer was named"
        print(json.dumps({"measure": "agent loop: tokens per second", "skipped": reason}))
        return
    python = engine_python()
    with tempfile.TemporaryDirectory() as folder:
        shape = QWEN3_4B | (TINY if options.rehearse else {})
        model = shaped_model(Path(folder, "model"), options.tokenizer, shape)
        engine = Engine(
            "vllm",
            dtype="float32" if options.rehearse else "bfloat16",
            device="cpu" if options.rehearse else "cuda",
            python=python,
            concurrency=max(options.concurrency),
            max_model_len=8192,
            options=OPTIONS,
        )
        log = Path(folder, "server.log")
        try:
            with serving(Target("shape", model=model), engine, log=log) as server:
                agent_loop(server, min(options.concurrency), 1)  # warm
                for concurrency in options.concurrency:
                    measure(server, python, model, concurrency, gpu)
        except HubtoolsError as error:
            raise SystemExit("\n".join([str(error), *error.detail])) from error


def gpu_name() -> str:
    """Of the first GPU; empty where there is none."""
    try:
        told = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return told.stdout.strip().partition("\n")[0]


if __name__ == "__main__":
    main()
