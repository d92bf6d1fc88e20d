"""Two tasks of τ²-bench for real: SmolLM2 on vLLM as agent and as customer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hubtools.evaluation.bridge import evaluate, model_weights
from hubtools.evaluation.records import read_run
from hubtools.evaluation.spec import Cell, Engine, SuiteOptions, Target
from hubtools.evaluation.tau2.environment import VARIABLE

NEEDED = ("TAU2_PYTHON", "ENGINE_PYTHON", "SMOLLM2")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not set(NEEDED) <= os.environ.keys(),
        reason="two gigabytes of engine and two minutes: set " + ", ".join(NEEDED),
    ),
]


def test_two_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, os.environ["TAU2_PYTHON"])
    model = Path(os.environ["SMOLLM2"])
    engine = Engine(
        "vllm",
        dtype="bfloat16",
        python=Path(os.environ["ENGINE_PYTHON"]),
        served_name="smollm2",
        concurrency=2,
        max_model_len=8192,
        options=(
            "--enable-auto-tool-choice",
            "--tool-call-parser=hermes",
            "--trust-request-chat-template",
            '--override-generation-config={"max_new_tokens": 64}',
        ),
    )
    wishes = SuiteOptions(
        limit=1,
        trials=1,
        user="self",
        max_steps=6,
        tool_template=str(Path(__file__).with_name("tools.jinja")),
    )
    target = Target("smollm2-135m", model_weights(model), model)
    cell = Cell(target, "tau2_airline", engine, 300, tmp_path, wishes)
    run = read_run(Path(evaluate(cell, log=tmp_path / "log")["path"]))
    assert (run.n, run.items, run.failures) == (2, 2, 0)
    assert run.protocol["user"]["model"] == "smollm2"
    assert run.engine["system_fingerprint"].startswith("vllm-")
    assert run.tokens["completion"] > 0
    samples = list(run.iter_samples())
    assert {sample["category"] for sample in samples} == {"write", "no-write"}
    assert all(4000 < s["tokens"]["prompt"] / s["turns"] < 6144 for s in samples)  # it saw tools
