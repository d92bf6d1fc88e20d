"""Reads τ²-bench results: one file, or the folder of releases since 1.0, checked as a whole."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from hubtools.digests import canonical_json
from hubtools.errors import CheckError
from hubtools.evaluation.scrub import scrub
from hubtools.evaluation.tau2.airline import Bench, bench_of
from hubtools.evaluation.tau2.simulations import models_of, sample_of

SIMULATIONS = "simulations"

_DAMAGE = (AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Results:
    """A whole grid of tasks and trials.

    Args:
        settings: how it was made, without keys: `agent` and `user` (kind, model asked for,
            temperature), `max_steps`, `max_errors`, `seed`, `git_commit`.
        bench: what was asked.
        trials: of each task.
        simulations: by task id and trial.
        layout: `choice` where only the chosen answers were kept, `response` where all of it.
        date: on which the file was begun.
    """

    settings: Mapping[str, Any]
    bench: Bench
    trials: int
    simulations: Mapping[tuple[str, int], Mapping[str, Any]]
    layout: str
    date: str

    def samples(self) -> Iterator[dict[str, Any]]:
        """In the order of tasks, then by trial."""
        for id, task in self.bench.tasks.items():
            for trial in range(self.trials):
                yield sample_of(self.simulations[id, trial], task, trial)

    def user_models(self) -> str:
        """The models that played the user, as returned; empty where the file does not know."""
        found = {models_of(simulation, "user") for simulation in self.simulations.values()}
        return ", ".join(sorted(found - {""}))

    def terminations(self) -> dict[str, int]:
        """How often conversations ended how."""
        return dict(Counter(str(s["termination_reason"]) for s in self.simulations.values()))


def read_results(path: Path) -> Results:
    """Read a results file, or a folder with `results.json` and `simulations/`.

    Raises:
        CheckError: HT468 not such a file, or damaged; HT469 another domain than airline; HT470
            tasks and trials are not one simulation each.
    """
    path, data = _loaded(path)
    try:
        info, tasks = data["info"], data["tasks"]
        domain = info["environment_info"]["domain_name"]
        if domain != "airline":
            raise CheckError(
                "HT469",
                f"results of the domain {domain!r}",
                where=str(path),
                detail=("Only airline is read.",),
                next="name results of the airline domain",
            )
        ids = [str(task["id"]) for task in tasks]
        bench = bench_of(tasks, str(info["environment_info"]["policy"]), ids, None)
        trials = int(info["num_trials"])
        simulations = _grid(data["simulations"], ids, trials, path)
        date = datetime.fromisoformat(str(data["timestamp"])).date().isoformat()
        settings = _settings(info)
        results = Results(settings, bench, trials, simulations, _layout(simulations), date)
        bench.identity()
        for _ in results.samples():  # a damaged one is told here, not midway
            pass
    except _DAMAGE as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise _not(f"these are no results of τ²-bench: {what}", path) from error
    return results


def is_results(path: Path) -> bool:
    """Whether `path` looks like results of τ²-bench, for who has to choose a reader."""
    try:
        _, data = _loaded(path)
    except CheckError:
        return False
    return {"info", "tasks"} <= data.keys() and (
        "simulations" in data or "simulation_index" in data
    )


def _loaded(path: Path) -> tuple[Path, dict[str, Any]]:
    """The file that was read, and its object with all simulations in it."""
    meta = path / "results.json" if path.is_dir() else path
    data = _json(meta)
    folder = meta.parent / SIMULATIONS
    if "simulations" not in data and folder.is_dir():
        data["simulations"] = [_json(file) for file in sorted(folder.glob("*.json"))]
    index = data.get("simulation_index")
    if isinstance(index, list):
        listed = {str(entry.get("id")) for entry in index if isinstance(entry, dict)}
        found = {str(s.get("id")) for s in data.get("simulations", ()) if isinstance(s, dict)}
        if listed != found:
            raise _not(f"{len(listed ^ found)} simulations are not those of its index", meta)
    return meta, data


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes(), parse_constant=_no_number)
    except (OSError, ValueError, RecursionError) as error:
        raise _not(f"cannot be read: {error}", path) from error
    if not isinstance(data, dict):
        raise _not("not a JSON object", path)
    return data


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not a number")


def _settings(info: Mapping[str, Any]) -> dict[str, Any]:
    sides = {name: info[f"{name}_info"] for name in ("agent", "user")}
    told = {
        name: {
            "kind": side.get("implementation"),
            "asked": str(side.get("llm") or ""),
            "temperature": (side.get("llm_args") or {}).get("temperature"),
        }
        for name, side in sides.items()
    }
    limits = {name: info.get(name) for name in ("max_steps", "max_errors")}
    seed, commit = int(info.get("seed") or 0), str(info.get("git_commit"))
    settings: dict[str, Any] = scrub({**told, **limits, "seed": seed, "git_commit": commit})
    canonical_json(settings)  # half a surrogate pair has no digest
    return settings


def _grid(
    simulations: list[dict[str, Any]], ids: list[str], trials: int, path: Path
) -> dict[tuple[str, int], dict[str, Any]]:
    cells = Counter((str(s["task_id"]), s["trial"]) for s in simulations)
    told = min(trials, len(simulations) + 1)  # a file may promise a billion
    wanted = {(id, trial) for id in ids for trial in range(told)}
    wrong = {
        "missing": sorted(wanted - cells.keys()),
        "not asked for": sorted(cells.keys() - wanted, key=str),
        "there more than once": sorted(cell for cell, n in cells.items() if n > 1),
    }
    if any(wrong.values()) or not wanted or len(set(ids)) != len(ids):
        raise CheckError(
            "HT470",
            f"not one simulation for each of {len(ids)} tasks × {trials} trials",
            where=str(path),
            detail=[
                f"{what}: " + ", ".join(f"task {id} trial {trial}" for id, trial in found[:8])
                for what, found in wrong.items()
                if found
            ],
            next="finish that run (tau2 run --auto-resume), or evaluate anew:"
            " hubtools evaluate MODEL --suite tau2_airline",
        )
    return {(str(s["task_id"]), s["trial"]): s for s in simulations}


def _layout(simulations: Mapping[tuple[str, int], Mapping[str, Any]]) -> str:
    for simulation in simulations.values():
        for message in simulation.get("messages") or ():
            raw = message.get("raw_data")
            if isinstance(raw, Mapping) and "choices" in raw:
                return "response"
    return "choice"


def _not(message: str, path: Path) -> CheckError:
    return CheckError(
        "HT468",
        message,
        where=str(path),
        detail=("Nothing was taken from it.",),
        next="name the results file that tau2 wrote (not *_results.json beside it)",
    )
