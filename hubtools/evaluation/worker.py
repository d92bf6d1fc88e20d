"""Child process of an evaluation: loads the model (or reaches the server) and runs the suite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval_harness.agents.making import agent_kind, make_agent, settings_of
from eval_harness.chat import Agent, Backend
from eval_harness.errors import HarnessError
from eval_harness.journal import NAME as RESPONSES
from eval_harness.runner import run
from eval_harness.suite import Suite
from hubtools.children import child_main
from hubtools.errors import Finding
from hubtools.evaluation.failures import bridged
from hubtools.evaluation.planning import suite_of, template_of
from hubtools.evaluation.spec import Cell, cell_from_json
from hubtools.files import disk_error
from hubtools.progress import Progress


def work(job: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Run the job that `bridge.evaluate` wrote down."""
    cell, folder, about = cell_from_json(job["cell"]), Path(job["folder"]), job["about"]
    suite = suite_of(cell)
    try:
        progress(f"evaluate {suite.id}", 0, suite.size, "samples")
        backend = _backend(cell, suite, job["server"], job["concurrency"])
        run(
            suite,
            backend,
            _agent(cell, suite),
            folder,
            seed=cell.seed,
            about=about,
            progress=progress,
            retry_failed="continues" in about,
            same_server=cell.engine.kind == "endpoint",
            finish=lambda damaged: {
                "engine": _engine(cell, backend, job["server"]),
                "findings": job["findings"] + _damage(damaged, cell, folder),
            },
        )
    except HarnessError as error:
        raise bridged(error) from error
    except OSError as error:
        raise disk_error(error, folder) from error
    return {}


def _damage(places: int, cell: Cell, folder: Path) -> list[dict[str, str]]:
    """The finding that kept answers were damaged and asked again."""
    if not places:
        return []
    message = f"{places} places in the kept answers are damaged: those were asked again"
    where, member = str(folder / RESPONSES), cell.target.member
    return [
        Finding(
            "HT421", "warning", message, where, f"hubtools evaluate show {folder}", member
        ).to_json()
    ]


def _agent(cell: Cell, suite: Suite) -> Agent:
    if agent_kind(suite.agent) == "single":
        return make_agent(suite)
    from eval_harness.retrievers.opening import open_retriever

    url = cell.options.retriever_url
    return make_agent(suite, open_retriever(suite.retriever, suite.base, url))


def _backend(
    cell: Cell, suite: Suite, server: Mapping[str, Any] | None, concurrency: int
) -> Backend:
    tools = agent_kind(suite.agent) == "search" and bool(settings_of(suite).tools)
    engine, target = cell.engine, cell.target
    if server is not None:
        from eval_harness.backends.openai import OpenAIBackend

        return OpenAIBackend(
            server["url"],
            server["served_name"],
            api_key_env=engine.api_key_env if engine.kind == "endpoint" else "",
            concurrency=concurrency,
            timeout=engine.timeout,
            template=template_of(cell, tools=tools),
            keeps_stop=engine.kind == "vllm",
            trust_env=engine.kind == "endpoint",
        )
    from eval_harness.backends.transformers import TransformersBackend

    assert target.model is not None
    return TransformersBackend(
        target.model,
        target.adapter,
        engine.dtype,
        engine.device,
        concurrency,
        template_of(cell, tools=False),
    )


def _engine(cell: Cell, backend: Backend, server: Mapping[str, Any] | None) -> dict[str, Any]:
    """What computed the answers; the address of a server of our own says nothing."""
    if server is None:
        return backend.describe()
    if cell.engine.kind == "endpoint":
        return {**backend.describe(), "server": server["describe"]}
    return {"backend": cell.engine.kind, **server["describe"]}


if __name__ == "__main__":
    child_main(work)
