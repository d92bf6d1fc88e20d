"""What a cell of τ²-bench airline asks for, and under which protocol; nothing is started."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubtools.digests import sha256_file
from hubtools.errors import UsageError
from hubtools.evaluation.engine_environment import engine_python, engine_versions
from hubtools.evaluation.planning import concurrency
from hubtools.evaluation.protocol import FAILURES, build_protocol
from hubtools.evaluation.scrub import scrub
from hubtools.evaluation.spec import Cell, Engine
from hubtools.evaluation.tau2.airline import METRIC, SUITE, TEST_IDS, TRIALS, Bench
from hubtools.evaluation.tau2.environment import PACKAGE, Installed, tau2_environment

USER_KEY = "HUBTOOLS_USER_API_KEY"
"""Environment variable with the key for the server that plays the user."""
SELF = "self"
"""As `user` of the options: the evaluated model plays the user too."""
MAX_STEPS, MAX_ERRORS = 200, 10
REWARD = "reward of 1: product over reward_basis; 0 where the conversation ends early"
SEEDS = "of run seed and trial"

_PARSER = "--enable-auto-tool-choice"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run.

    Args:
        installed: the environment that runs it.
        bench: the tasks.
        trials: of each task.
        max_steps: of a conversation.
        user: `URL#NAME` or `self`.
        protocol: as planned: it names the user's model as it will be asked for.
    """

    installed: Installed
    bench: Bench
    trials: int
    max_steps: int
    user: str
    protocol: Mapping[str, Any]


def plan_of(cell: Cell) -> Plan:
    """The plan of a cell.

    Raises:
        EnvironmentFailure: HT465, HT466 there is no usable environment of τ²-bench, HT435 of vLLM.
        UsageError: HT467 nobody plays the user, HT472 the engine would not parse tool calls.
    """
    options, engine = cell.options, cell.engine
    name = options.user.partition("#")[2]
    if not name and options.user != SELF:
        raise UsageError(
            "HT467",
            f"{SUITE} needs a model that plays the customer",
            where=scrub(options.user),
            detail=("Its name is part of the protocol. Nothing was started.",),
            next=f"add --user URL#NAME (key: {USER_KEY}), or --user {SELF} for the model itself",
        )
    if engine.kind == "vllm" and _PARSER not in engine.options:
        raise UsageError(
            "HT472",
            f"{SUITE} needs a server that parses tool calls",
            detail=(f"vLLM does so with {_PARSER} alone. Nothing was started.",),
            next=f"add --engine-option={_PARSER} --engine-option=--tool-call-parser=NAME"
            " (hermes for Qwen models)",
        )
    installed = tau2_environment()
    bench = installed.bench(TEST_IDS).drawn(options.limit, options.sample_seed)
    trials, max_steps = options.trials or TRIALS, options.max_steps or MAX_STEPS
    protocol = protocol_of(
        bench,
        installed.versions,
        trials=trials,
        agent={"kind": "llm_agent", "max_steps": max_steps, "tool_calls": _parsed(engine)},
        user={"kind": "user_simulator", "model": name or SELF, "temperature": 0.0},
        sampling={
            "temperature": options.temperature or 0.0,
            "seeds": SEEDS,
            **_overridden(engine),
        },
        **_computing(cell),
    )
    return Plan(installed, bench, trials, max_steps, options.user, protocol)


def protocol_of(
    bench: Bench, versions: Mapping[str, str], *, agent: Mapping[str, Any], **fields: Any
) -> dict[str, Any]:
    """The protocol of a run by the released package; `fields` as in `protocol.KEYS`."""
    return build_protocol(
        harness={
            "name": PACKAGE,
            "version": versions[PACKAGE],
            "litellm": versions["litellm"],
            "db_sha256": bench.db_sha256,
        },
        suite=bench.identity(),
        agent={"max_errors": MAX_ERRORS, **agent},
        scorers={METRIC: REWARD},
        reducer="mean, micro",
        failures=FAILURES,
        **fields,
    )


def _parsed(engine: Engine) -> str:
    name = _option(engine, "--tool-call-parser")
    return f"parsed by the server ({name})" if name else "parsed by the server"


def _overridden(engine: Engine) -> dict[str, str]:
    """What the server was told to change of every request."""
    told = _option(engine, "--override-generation-config")
    return {"server": told} if told else {}


def _option(engine: Engine, name: str) -> str:
    """Value of a server's option, written `--name value` or `--name=value`; empty when absent."""
    options = [part for option in engine.options for part in option.split("=", 1)]
    return options[options.index(name) + 1] if name in options[:-1] else ""


def _computing(cell: Cell) -> dict[str, Any]:
    """The fields that say what computes the evaluated model's answers."""
    engine, template = cell.engine, cell.options.tool_template
    shared = {
        "batch_size": concurrency(engine),
        "prompt": {"chat_template": sha256_file(Path(template)) if template else "server"},
        "max_context": cell.options.max_context or engine.max_model_len,
    }
    if engine.kind == "endpoint":
        return {**shared, "backend": "openai", "engine": {}, "dtype": "server", "device": "server"}
    vllm = engine.kind == "vllm"
    return {
        **shared,
        "backend": "vllm" if vllm else "transformers serve",
        "engine": engine_versions(engine_python(engine.python) if vllm else Path(sys.executable)),
        "dtype": engine.dtype,
        "device": engine.device.partition(":")[0],
    }
