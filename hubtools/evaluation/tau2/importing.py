"""Results that somebody else's τ²-bench wrote become a run of ours, with what is missing named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hubtools.digests import sha256_file, sha256_json
from hubtools.evaluation.protocol import FAILURES, build_protocol, protocol_id
from hubtools.evaluation.runs import fresh, record_of, taken_in
from hubtools.evaluation.tau2.airline import METRIC, SUITE
from hubtools.evaluation.tau2.planning import REWARD, SEEDS
from hubtools.evaluation.tau2.record import write_tau2
from hubtools.evaluation.tau2.results import SIMULATIONS, Results, read_results
from hubtools.files import locked, write_json

LOOPS = {
    "verl-recipe": "one tool call at a time, tool results cut to 1024 characters, errors count as 0"
}
"""Other loops over the same tasks: never in one table with the benchmark's own."""


def import_tau2(
    path: Path, out: Path, *, member: str, weights: str = "", loop: str = ""
) -> dict[str, Any]:
    """Make a run of results; importing the same ones again finds it.

    Which model answered is taken from the responses alone: where a release did not keep them, the
    name that was asked for is no substitute, and the record says that it is missing.

    Args:
        path: a results file, or a folder of releases since 1.0.
        out: the append-only folder of runs.
        member: whom the figures are about.
        weights: digest of what was measured, where it is known.
        loop: one of `LOOPS`, where another loop than the benchmark's own made them.

    Returns:
        The run's record, and under `path` the file that holds it.

    Raises:
        CheckError: HT468, HT469, HT470, HT406; nothing was written.
        EnvironmentFailure: HT901, HT903.
    """
    results = read_results(path)
    suite = f"{SUITE}@{loop}" if loop else SUITE
    protocol, missing = _protocol(results, suite, loop)
    source = {
        "file": path.name,
        "sha256": _digest(path),
        "layout": results.layout,
        "git_commit": results.settings["git_commit"],
    }
    about = {
        "source": source,
        "plan_id": protocol_id(protocol),
        "member": member,
        "weights": weights,
        "requested": results.settings["agent"]["asked"],
        "seed": results.settings["seed"],
    }
    runs = out / suite
    with locked(runs / ".lock", f"the folder of runs {runs.name}"):
        if (known := taken_in(runs, about)) is not None:
            return record_of(known)
        folder = fresh(runs)
        more = {"status": "external", "missing": missing, "engine": {}, "date": results.date}
        write_json(folder / "about.json", about)
        write_tau2(folder, list(results.samples()), protocol, {**about, **more})
    return record_of(folder)


def _protocol(results: Results, suite: str, loop: str) -> tuple[dict[str, Any], list[str]]:
    """What the file tells of the protocol, and the names of what it does not."""
    told, model = results.settings, results.user_models()
    agent, user = told["agent"], told["user"]
    protocol = build_protocol(
        harness={"name": "tau2-bench"},
        suite={**results.bench.identity(), "id": suite},
        agent={
            "kind": LOOPS.get(loop, agent["kind"]),
            "max_steps": told["max_steps"],
            "max_errors": told["max_errors"],
            "tool_calls": "parsed by the server",
        },
        scorers={METRIC: REWARD},
        sampling={"temperature": agent["temperature"], "seeds": SEEDS},
        trials=results.trials,
        reducer="mean, micro",
        failures=FAILURES,
        user={
            "kind": user["kind"],
            "temperature": user["temperature"],
            **({"model": model} if model else {}),
        },
    )
    unknown = {
        "harness.version": True,  # git_commit is that of the folder in which somebody ran it
        "harness.db_sha256": True,
        "engine": True,
        "backend": True,
        "dtype": True,
        "device": True,
        "batch_size": True,
        "returned_model": results.layout == "choice",
        "user.model": not model,
    }
    return protocol, [name for name, is_unknown in unknown.items() if is_unknown]


def _digest(path: Path) -> str:
    if path.is_file():
        return sha256_file(path)
    files = [path / "results.json", *sorted((path / SIMULATIONS).glob("*.json"))]
    return sha256_json({file.name: sha256_file(file) for file in files})
