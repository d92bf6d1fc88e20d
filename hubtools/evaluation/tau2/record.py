"""From a finished grid and the recorded calls to the record of a run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval_harness.errors import HarnessError
from eval_harness.record import write_run
from hubtools.digests import sha256_file
from hubtools.errors import CheckError
from hubtools.evaluation.failures import bridged
from hubtools.evaluation.protocol import protocol_id
from hubtools.evaluation.proxy import read_calls
from hubtools.evaluation.scrub import scrub
from hubtools.evaluation.tau2.airline import DESCRIPTION, METRIC, TITLE, Bench
from hubtools.evaluation.tau2.simulations import sample_of

AGENT_CALLS, USER_CALLS = "responses.jsonl.zst", "responses-user.jsonl.zst"
GRID = "simulations"

Served = Mapping[str, Mapping[str, str]]


def returned(calls: Path) -> dict[str, dict[str, str]]:
    """`task/trial` to the model and fingerprint that answered, as the server said."""
    fields = {"model": "model", "fingerprint": "system_fingerprint"}
    found: dict[str, dict[str, set[str]]] = {}
    for call in read_calls(calls):
        response = call["response"]
        if call["failure"] or not isinstance(response, dict):
            continue
        sample = found.setdefault(call["sample"], {name: set() for name in fields})
        for name, field in fields.items():
            if isinstance(response.get(field), str):
                sample[name].add(response[field])
    return {
        sample: {name: ", ".join(sorted(values)) for name, values in names.items() if values}
        for sample, names in found.items()
    }


def grid_samples(folder: Path, bench: Bench, trials: int, served: Served) -> list[dict[str, Any]]:
    """The samples of a grid, in the order of tasks, then by trial.

    Raises:
        CheckError: HT471 a task and trial is missing.
    """
    return [
        _sample(folder / GRID / f"{id}-{trial}.json", task, trial, served.get(f"{id}/{trial}"))
        for id, task in bench.tasks.items()
        for trial in range(trials)
    ]


def write_tau2(
    folder: Path,
    samples: Sequence[Mapping[str, Any]],
    protocol: Mapping[str, Any],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Write both files of a run.

    Args:
        folder: of the run.
        samples: one for each task and trial.
        protocol: the final one.
        about: `member`, `weights`, `requested`, `seed`, `plan_id`, and what else is known.

    Raises:
        CheckError: HT406 nothing was scored.
    """
    ends = Counter(s["finish"] for s in samples if s["scores"] is not None)
    bases = Counter("+".join(s["extra"]["reward_basis"] or ["none"]) for s in samples)
    record = {
        **about,
        "harness": protocol["harness"],
        "suite": protocol["suite"],
        "title": TITLE,
        "description": DESCRIPTION,
        "protocol": protocol,
        "protocol_id": protocol_id(protocol),
        "terminations": dict(sorted(ends.items())),
        "reward_basis": dict(sorted(bases.items())),
        **dict(_digests(folder)),
    }
    try:
        return write_run(folder, samples, record, metrics=(METRIC,))
    except HarnessError as error:
        raise bridged(error) from error


def _sample(
    file: Path, task: Mapping[str, Any], trial: int, served: Mapping[str, str] | None
) -> dict[str, Any]:
    if not file.is_file():
        raise CheckError(
            "HT471",
            f"the harness left out task {task['id']}, trial {trial}",
            where=str(file.parent),
            next="run the same command again: what is there is kept",
        )
    kept = json.loads(file.read_bytes())
    if "simulation" in kept:
        return sample_of(kept["simulation"], task, trial, served=served)
    nothing = {"termination_reason": "infrastructure_error"}
    failure = {"failure": scrub(kept["error"]), "failure_kind": kept["kind"]}
    return sample_of(nothing, task, trial, served=served) | failure


def _digests(folder: Path) -> Iterator[tuple[str, str]]:
    for name, file in (("responses", AGENT_CALLS), ("responses_user", USER_CALLS)):
        if (folder / file).is_file():
            yield f"{name}_sha256", sha256_file(folder / file)
