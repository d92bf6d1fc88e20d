"""What a cell will ask, and under which protocol: known before any engine is started."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from eval_harness.agents.making import agent_kind, settings_of
from eval_harness.backends.transformers import DTYPES, tokenizer_folder
from eval_harness.chat_template import ChatTemplate
from eval_harness.errors import HarnessError
from eval_harness.retrievers.opening import retriever_identity
from eval_harness.suite import Suite, load_suite
from hubtools.errors import UsageError
from hubtools.evaluation.engine_environment import engine_python, engine_versions
from hubtools.evaluation.failures import bridged
from hubtools.evaluation.preflight import Wants
from hubtools.evaluation.protocol import protocol_of
from hubtools.evaluation.spec import Cell, Engine, Target
from hubtools.evaluation.vllm_server import sequences

ENGINE = ("torch", "transformers")
BACKENDS = {"transformers": "transformers", "vllm": "vllm", "endpoint": "openai"}


def suite_of(cell: Cell) -> Suite:
    """The suite with the cell's options.

    Raises:
        UsageError: HT401, HT402, HT426.
        CheckError: HT425.
    """
    options = cell.options
    try:
        return load_suite(cell.suite, accept_unpinned=options.accept_unpinned).with_options(
            limit=options.limit,
            sample_seed=options.sample_seed,
            trials=options.trials,
            temperature=options.temperature,
            nudge=options.nudge,
            max_context=options.max_context,
        )
    except HarnessError as error:
        if error.kind == "unknown_suite":
            error.next += "; or tau2_airline, or lm_eval:TASK"
        raise bridged(error) from error


def protocol_for(cell: Cell, suite: Suite) -> dict[str, Any]:
    """The protocol of a cell of our own harness.

    Without a checkpoint the digest of its chat template is left out, so that a plan can be made
    before the checkpoint exists.

    Raises:
        UsageError: HT413 unknown dtype.
        CheckError: HT427 a corpus that cannot be used.
        EnvironmentFailure: HT428 no retriever, HT435 no vLLM.
    """
    engine, served = cell.engine, cell.engine.kind == "endpoint"
    if engine.dtype not in DTYPES:
        raise UsageError(
            "HT413", f"unknown dtype {engine.dtype!r}", next=f"choose one of: {', '.join(DTYPES)}"
        )
    retriever = None
    if agent_kind(suite.agent) == "search":
        try:
            retriever = retriever_identity(suite.retriever, suite.base, cell.options.retriever_url)
        except HarnessError as error:
            raise bridged(error) from error
    return protocol_of(
        suite.identity(),
        backend=BACKENDS[engine.kind],
        engine=_versions(engine),
        dtype="server" if served else engine.dtype,
        device="server" if served else engine.device.partition(":")[0],
        batch_size=concurrency(engine),
        chat_template=_template_digest(cell),
        max_context=engine.max_model_len,
        retriever=retriever,
    )


def computing(cell: Cell) -> dict[str, Any]:
    """Fields of a foreign harness's protocol that say what computes the answers."""
    engine, served = cell.engine, cell.engine.kind == "endpoint"
    backend = {**BACKENDS, "transformers": "transformers serve"}[engine.kind]
    return {
        "backend": backend,
        "engine": _versions(engine),
        "dtype": "server" if served else engine.dtype,
        "device": "server" if served else engine.device.partition(":")[0],
        "batch_size": concurrency(engine),
        "prompt": {"chat_template": _template_digest(cell) or "server"},
    }


def concurrency(engine: Engine) -> int:
    """Samples in flight."""
    if engine.kind == "vllm":
        return sequences(engine)
    return engine.concurrency or {"transformers": 16, "endpoint": 32}[engine.kind]


def wants(cell: Cell, suite: Suite) -> Wants:
    """What the suite asks of the model, for the preflight."""
    tools: tuple[Mapping[str, Any], ...] = ()
    stop, markup = suite.sampling.stop, False
    if agent_kind(suite.agent) == "search":
        settings = settings_of(suite)
        tools, stop, markup = settings.tools, settings.stop, True
    return Wants(
        max_tokens=suite.sampling.max_new_tokens,
        max_context=suite.max_context,
        tools=tools,
        stop=stop,
        markup=markup,
        tool_template=_override(cell),
        concurrency=concurrency(cell.engine),
    )


def template_of(cell: Cell, *, tools: bool) -> ChatTemplate | None:
    """The template that we render ourselves: one in place of the checkpoint's, or for tools.

    Raises:
        HarnessError: `bad_model`.
    """
    override, folder = _override(cell), _tokenizer(cell.target)
    if override is None and (not tools or folder is None):
        return None
    return ChatTemplate.load(folder or Path(cell.options.tool_template).parent, override)


def chat_template_digest(folder: Path, override: Path | None = None) -> str:
    """sha256 of the chat template that transformers would use from `folder`, or `none`."""
    try:
        return ChatTemplate.load(folder, override).sha256
    except HarnessError:
        return "none"  # loading the model says what is wrong with it


def _template_digest(cell: Cell) -> str | None:
    override, folder = _override(cell), _tokenizer(cell.target)
    if override is not None:
        return chat_template_digest(folder or override.parent, override)
    if cell.engine.kind == "endpoint":
        return "server"
    return None if folder is None else chat_template_digest(folder)


def _tokenizer(target: Target) -> Path | None:
    return None if target.model is None else tokenizer_folder(target.model, target.adapter)


def _override(cell: Cell) -> Path | None:
    return Path(cell.options.tool_template) if cell.options.tool_template else None


def _versions(engine: Engine) -> dict[str, str]:
    if engine.kind == "endpoint":
        return {}
    if engine.kind == "vllm":
        return engine_versions(engine_python(engine.python))
    return {name: _version(name) for name in ENGINE}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
