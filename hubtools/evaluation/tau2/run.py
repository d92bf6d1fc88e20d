"""A run of τ²-bench airline: through the benchmark's own package, with every answer recorded.

Both the evaluated model and the one that plays the user are asked through recording proxies, as
the package itself does not keep which model answered.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from hubtools.evaluation.planning import concurrency
from hubtools.evaluation.preflight import Wants, preflight, require
from hubtools.evaluation.proxy import recording
from hubtools.evaluation.serving import Server, serving
from hubtools.evaluation.spec import Cell
from hubtools.evaluation.tau2.floor import measured_floor
from hubtools.evaluation.tau2.grid import run_grid
from hubtools.evaluation.tau2.planning import MAX_ERRORS, SELF, USER_KEY, Plan, plan_of
from hubtools.evaluation.tau2.record import (
    AGENT_CALLS,
    GRID,
    USER_CALLS,
    grid_samples,
    returned,
    write_tau2,
)
from hubtools.files import disk_error, write_json
from hubtools.progress import Progress, silent

CONTEXT = 6144
"""Tokens that policy, tools and a short conversation need."""

_TOOL = {
    "type": "function",
    "function": {
        "name": "get_user_details",
        "description": "Profile of a user.",
        "parameters": {"type": "object", "properties": {"user_id": {"type": "string"}}},
    },
}


def planned_protocol(cell: Cell) -> dict[str, Any]:
    """The protocol of a cell, nothing started.

    Raises:
        EnvironmentFailure, UsageError: as `planning.plan_of`.
    """
    return dict(plan_of(cell).protocol)


def run_tau2(
    cell: Cell,
    server: Server | None,
    folder: Path,
    *,
    about: Mapping[str, Any],
    log: Path,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Run the cell's grid into `folder`, or go on with what is there, and write its record.

    The floor of the same tasks is measured first, as a run beside it, unless it is there.

    Args:
        cell: of the suite `tau2_airline`; its `limit` draws tasks of each category.
        server: answers as the target and parses tool calls; None: one is started.
        folder: of the run. Finished conversations are kept in it one by one: after a kill only
            those in flight are held again, and those that failed.
        about: who is measured and the plan, for `about.json` and the record.
        log: for what tau2 says.
        progress: told the number of finished conversations.

    Raises:
        EnvironmentFailure: HT465, HT466 no τ²-bench; HT901; HT904 it died; as `serving`.
        UsageError: HT467, HT472.
        CheckError: HT440 context, HT442 the template hides tools, HT406 nothing was scored, HT471
            a conversation is missing.
    """
    plan = plan_of(cell)
    with ExitStack() as stack:
        if server is None:
            started = serving(cell.target, cell.engine, log=log, progress=progress)
            server = stack.enter_context(started)
        found = preflight(
            cell.target, cell.engine, _wants(cell), max_model_len=server.max_model_len
        )
        require(found)
        _begin(folder, about)
        measured_floor(folder.parent, plan.installed, plan.bench, log=log, progress=progress)
        sides = stack.enter_context(_sides(cell, server, plan, folder))
        run_grid(
            plan.installed,
            folder,
            {
                "tasks": list(plan.bench.tasks),
                "trials": plan.trials,
                "seed": cell.seed,
                "max_steps": plan.max_steps,
                "max_errors": MAX_ERRORS,
                "concurrency": concurrency(cell.engine),
                **sides,
            },
            log=log,
            progress=progress,
        )
    samples = grid_samples(folder, plan.bench, plan.trials, returned(folder / AGENT_CALLS))
    answered = returned(folder / USER_CALLS).values()
    model = ", ".join(sorted({served["model"] for served in answered if "model" in served}))
    user = {**plan.protocol["user"], "model": model or None}
    more = {
        "engine": dict(server.describe),
        "findings": [finding.to_json() for finding in found],
        "user_requested": plan.protocol["user"]["model"],
        "missing": [] if model else ["user.model"],
    }
    return write_tau2(folder, samples, {**plan.protocol, "user": user}, {**about, **more})


def _begin(folder: Path, about: Mapping[str, Any]) -> None:
    """Claim the folder; a run that continues another begins with its conversations."""
    fresh = not (folder / GRID).is_dir()
    try:
        (folder / GRID).mkdir(parents=True, exist_ok=True)
        write_json(folder / "about.json", dict(about))
        if fresh and "continues" in about:
            earlier = folder.with_name(str(about["continues"]))
            shutil.copytree(earlier / GRID, folder / GRID, dirs_exist_ok=True)
            for name in (AGENT_CALLS, USER_CALLS):
                shutil.copyfile(earlier / name, folder / name)
    except OSError as error:
        raise disk_error(error, folder) from error


@contextmanager
def _sides(cell: Cell, server: Server, plan: Plan, folder: Path) -> Iterator[dict[str, Any]]:
    """Both sides of the conversation, behind recording proxies."""
    url, _, name = plan.user.partition("#")
    own, key = plan.user == SELF, cell.engine.api_key_env
    template, extra = cell.options.tool_template, {}
    if template:  # the server has to allow it, or says that it does not
        text = Path(template).read_text(encoding="utf-8")
        extra = {"extra_body": {"chat_template": text}}
    with (
        recording(server.url, api_key_env=key, file=folder / AGENT_CALLS) as agent_url,
        recording(
            server.url if own else url,
            api_key_env=key if own else USER_KEY,
            file=folder / USER_CALLS,
        ) as user_url,
    ):
        yield {
            "agent": {
                "url": agent_url,
                "model": server.served_name,
                "arguments": {"temperature": cell.options.temperature or 0.0, **extra},
            },
            "user": {
                "url": user_url,
                "model": server.served_name if own else name,
                "arguments": {"temperature": 0.0},
            },
        }


def _wants(cell: Cell) -> Wants:
    template = cell.options.tool_template
    return Wants(
        max_tokens=1,
        max_context=cell.options.max_context or CONTEXT,
        tools=(_TOOL,),
        tool_template=Path(template) if template else None,
        concurrency=concurrency(cell.engine),
    )
