"""A run of lm-eval tasks: over a recording proxy, with every answer kept, into our record."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from eval_harness.backends.transformers import tokenizer_folder
from eval_harness.errors import HarnessError
from eval_harness.record import write_run
from hubtools.children import run_child
from hubtools.digests import sha256_file, sha256_json
from hubtools.errors import CheckError, UsageError
from hubtools.evaluation.failures import bridged
from hubtools.evaluation.lmeval.asked import Asked, asked
from hubtools.evaluation.lmeval.environment import lm_eval_python, version
from hubtools.evaluation.lmeval.samples import metric_names, samples_of
from hubtools.evaluation.planning import computing, concurrency
from hubtools.evaluation.protocol import FAILURES, build_protocol, protocol_id
from hubtools.evaluation.proxy import read_calls, recording
from hubtools.evaluation.serving import Server, serving
from hubtools.evaluation.spec import Cell
from hubtools.files import disk_error, write_json
from hubtools.progress import Progress, labelled, silent

CALLS = "responses.jsonl.zst"
_SCRIPT = Path(__file__).with_name("tasks_child.py")


def planned_protocol(cell: Cell) -> dict[str, Any]:
    """The protocol as far as it is known before lm-eval has read its tasks.

    Raises:
        UsageError: HT450, HT453 an option that lm-eval's tasks do not have, HT454.
        EnvironmentFailure: HT451 no lm-eval, HT435 no vLLM.
    """
    wanted, options = asked(cell.suite), cell.options
    for name in ("trials", "nudge", "retriever_url", "user", "max_steps"):
        if getattr(options, name):
            raise UsageError(
                "HT453",
                f"a task of lm-eval has no {name.replace('_', ' ')}",
                detail=("Nothing was started.",),
                next=f"leave out --{name.replace('_', '-')}",
            )
    suite: dict[str, Any] = {"id": "lm_eval", "tasks": list(wanted.tasks)}
    if wanted.include:
        suite["include_sha256"] = _include_digest(wanted.include)
    if options.limit is not None:
        suite["drawn"] = {"limit": options.limit, "sample_seed": options.sample_seed}
    return build_protocol(
        harness={"name": "lm_eval", "version": version(lm_eval_python())},
        suite=suite,
        sampling={"temperature": options.temperature if options.temperature else "of the task"},
        failures=FAILURES,
        reducer="mean, micro",
        max_context=options.max_context or cell.engine.max_model_len,
        **computing(cell),
    )


def run_lm_eval(
    cell: Cell,
    server: Server | None,
    folder: Path,
    *,
    about: Mapping[str, Any],
    log: Path,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Run the cell's tasks into `folder`, or go on with what is there, and write its record.

    Args:
        cell: of a suite `lm_eval:…`.
        server: answers as the target; None: one is started.
        folder: of the run; answers are kept in it one by one.
        about: who is measured and the plan, for `about.json` and the record.
        log: for what lm-eval says.
        progress: told the number of answered requests.

    Raises:
        UsageError: HT452 an unknown task.
        EnvironmentFailure: HT451; HT901; HT904 lm-eval died; as `serving`.
        CheckError: HT406 nothing was scored, HT455 lm-eval left something out.
    """
    wanted = asked(cell.suite)
    with ExitStack() as stack:
        if server is None:
            started = serving(cell.target, cell.engine, log=log, progress=progress)
            server = stack.enter_context(started)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(error, folder) from error
        write_json(folder / "about.json", dict(about))
        key = cell.engine.api_key_env
        url = stack.enter_context(recording(server.url, api_key_env=key, file=folder / CALLS))
        run_child(
            _SCRIPT,
            _job(cell, wanted, server, url, folder),
            log=log,
            what=f"lm-eval on {', '.join(wanted.tasks)}",
            progress=labelled(progress, f"evaluate {cell.suite}"),
            python=str(lm_eval_python()),
            env=_environment(),
        )
    return _record(cell, server, folder, about)


def _job(cell: Cell, wanted: Asked, server: Server, url: str, folder: Path) -> dict[str, Any]:
    model, temperature = cell.target.model, cell.options.temperature
    tokenizer = "" if model is None else str(tokenizer_folder(model, cell.target.adapter).resolve())
    return {
        "tasks": list(wanted.tasks),
        "include": str(Path(wanted.include).resolve()) if wanted.include else "",
        "folder": str(folder.resolve()),
        "url": url,
        "model": server.served_name,
        "tokenizer": tokenizer,
        "concurrency": concurrency(cell.engine),
        "max_length": cell.options.max_context or server.max_model_len or 2048,
        "limit": cell.options.limit,
        "sample_seed": cell.options.sample_seed,
        "seed": cell.seed,
        "gen_kwargs": {"temperature": temperature, "do_sample": True} if temperature else {},
    }


def _record(cell: Cell, server: Server, folder: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    try:
        told = json.loads((folder / "results.json").read_bytes())["tasks"]
        lines = (folder / "raw_samples.jsonl").read_bytes().splitlines()
        raw = [json.loads(line) for line in lines]
    except (OSError, ValueError, KeyError) as error:
        raise _left_out(f"its results cannot be read: {error}", folder) from error
    metrics, dropped = metric_names(raw)
    if not metrics:
        raise _nothing_shared(dropped, list(told), folder)
    samples = list(samples_of(raw, metrics))
    for task, entry in told.items():
        n = sum(sample["category"] == task for sample in samples)
        if n != entry["asked"]["effective"] or not n:
            raise _left_out(f"{task}: {n} samples of {entry['asked']}", folder)
    protocol = _final(about["protocol"], told, samples, metrics)
    calls = [c["response"] for c in read_calls(folder / CALLS) if isinstance(c["response"], dict)]
    record = {
        **about,
        "harness": protocol["harness"],
        "suite": protocol["suite"],
        "title": f"lm-eval: {', '.join(told)}",
        "description": "Tasks of EleutherAI's lm-evaluation-harness.",
        "protocol": protocol,
        "protocol_id": protocol_id(protocol),
        "engine": dict(server.describe),
        "left_out": dropped,
        "missing": [] if calls else ["served"],
        "responses_sha256": sha256_file(folder / CALLS),
        "returned": {
            name: sorted({str(call[name]) for call in calls if call.get(name)})
            for name in ("model", "system_fingerprint")
        },
    }
    try:
        return write_run(folder, samples, record, metrics=metrics)
    except HarnessError as error:
        raise bridged(error) from error


def _final(
    planned: Mapping[str, Any],
    told: Mapping[str, Any],
    samples: list[dict[str, Any]],
    metrics: list[str],
) -> dict[str, Any]:
    """The planned protocol with what the tasks turned out to be."""
    tasks = {
        name: {
            "version": entry["version"],
            "config_sha256": sha256_json(_portable(entry["config"])),
            "n_shot": entry["n_shot"],
            "interface": entry["interface"],
        }
        for name, entry in told.items()
    }
    suite = {
        **planned["suite"],
        "id": _id(told),
        "tasks": tasks,
        "n": len(samples),
        "items_sha256": sha256_json([sample["extra"]["doc_hash"] for sample in samples]),
        "ids_sha256": sha256_json([sample["item"] for sample in samples]),
    }
    return {**planned, "suite": suite, "scorers": dict.fromkeys(metrics, "of the task")}


def _portable(config: Mapping[str, Any]) -> dict[str, Any]:
    """A task's configuration without where its files lie on this machine."""
    apart = ("dataset_kwargs", "metadata")
    return {key: value for key, value in config.items() if key not in apart}


def _id(told: Mapping[str, Any]) -> str:
    return "lm_eval-" + "-".join(told) if len(told) < 4 else f"lm_eval-{len(told)}-tasks"


def _include_digest(include: str) -> str:
    folder = Path(include)
    if not folder.is_dir():
        raise UsageError(
            "HT454",
            "the folder of tasks is not there",
            where=include,
            detail=("Nothing was started.",),
            next="correct what follows the @ in the suite's name",
        )
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return sha256_json({str(path.relative_to(folder)): sha256_file(path) for path in files})


def _environment() -> dict[str, str]:
    """None of our keys, and loopback without a proxy."""
    secret = [name for name in os.environ if name.endswith(("KEY", "SECRET", "PASSWORD"))]
    return {
        **dict.fromkeys(secret, ""),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
        "TOKENIZERS_PARALLELISM": "false",
    }


def _nothing_shared(metrics: list[str], tasks: list[str], folder: Path) -> CheckError:
    single = " ".join(f"--suite lm_eval:{task}" for task in tasks)
    return CheckError(
        "HT456",
        f"no metric is a share from 0 to 1 in every task (found: {', '.join(metrics) or 'none'})",
        where=str(folder),
        detail=("No figure was computed; answers are kept.",),
        next=f"evaluate each task by itself, on one start of the engine: {single}"
        if len(tasks) > 1
        else "choose a task with such a metric",
    )


def _left_out(why: str, folder: Path) -> CheckError:
    return CheckError(
        "HT455",
        f"lm-eval left something out: {why}",
        where=str(folder),
        detail=("No figure was computed; answers are kept.",),
        next="read the log in the folder of runs, then run the same command again",
    )
