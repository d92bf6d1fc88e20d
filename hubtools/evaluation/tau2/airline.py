"""What τ²-bench airline asks: which tasks, under which policy, on which database."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hubtools.digests import sha256_bytes, sha256_json

SUITE = "tau2_airline"
TITLE = "τ²-bench airline"
DESCRIPTION = (
    "An agent with tools serves a simulated customer of an airline. A task succeeds when the"
    " database ends as it should and the customer was told what they had to be told."
)
METRIC = "success"
TEST_IDS = (
    *("2", "6", "8", "13", "16", "18", "19", "22", "24", "25"),
    *("26", "29", "30", "31", "32", "35", "37", "44", "45", "48"),
)
"""The 20 tasks that the package's own `test` split holds out."""
TRIALS = 4
WRITE, READ = "write", "no-write"
"""Categories: tasks that change the database, and those that an agent passes by doing nothing."""

_WRITES = {
    *("book_reservation", "cancel_reservation", "send_certificate"),
    *("update_reservation_baggages", "update_reservation_flights"),
    "update_reservation_passengers",
}
_BASIS = ["DB", "COMMUNICATE"]


@dataclass(frozen=True, slots=True)
class Bench:
    """The data of one release of the benchmark.

    Args:
        tasks: as they stand in `tasks.json` or in a results file, by id, in the order asked.
        policy_sha256: of the policy's text.
        db_sha256: of `db.json`; None where it is not known.
    """

    tasks: Mapping[str, Mapping[str, Any]]
    policy_sha256: str
    db_sha256: str | None = None

    def identity(self) -> dict[str, Any]:
        """What is asked, for the protocol; how it is asked stands elsewhere."""
        ids = list(self.tasks)
        return {
            "id": SUITE,
            "n": len(ids),
            "ids": ids,
            "ids_sha256": sha256_json(ids),
            "tasks_sha256": sha256_json([normal(task) for task in self.tasks.values()]),
            "policy_sha256": self.policy_sha256,
            "categories": dict(Counter(map(category, self.tasks.values()))),
            "split": "test" if tuple(ids) == TEST_IDS else "listed",
        }

    def drawn(self, limit: int | None, seed: int) -> Bench:
        """At most `limit` tasks of each category, drawn with `seed`; None: all of them."""
        if limit is None:
            return self
        groups: dict[str, list[str]] = {}
        for id, task in self.tasks.items():
            groups.setdefault(category(task), []).append(id)
        kept = {
            id
            for name, ids in groups.items()
            for id in random.Random(f"{seed}/{name}").sample(ids, min(limit, len(ids)))
        }
        tasks = {id: task for id, task in self.tasks.items() if id in kept}
        return Bench(tasks, self.policy_sha256, self.db_sha256)


def bench_of(
    tasks: Sequence[Mapping[str, Any]], policy: str, ids: Sequence[str], db_sha256: str | None
) -> Bench:
    """The tasks called `ids`, in that order.

    Raises:
        KeyError: a task that is not there.
    """
    by_id = {str(task["id"]): task for task in tasks}
    return Bench({id: by_id[id] for id in ids}, sha256_bytes(policy.encode()), db_sha256)


def category(task: Mapping[str, Any]) -> str:
    """Whether the right thing to do changes the database."""
    names = {action["name"] for action in _criteria(task).get("actions") or ()}
    return WRITE if names & _WRITES else READ


def normal(task: Mapping[str, Any]) -> dict[str, Any]:
    """What of a task decides conversation and reward, the same in every release's spelling."""
    criteria = _criteria(task)
    actions = [
        {
            "name": action["name"],
            "arguments": action["arguments"],
            "requestor": action.get("requestor") or "assistant",
        }
        for action in criteria.get("actions") or ()
    ]
    return {
        "id": str(task["id"]),
        "user": _stated(task.get("user_scenario")),
        "initial_state": _stated(task.get("initial_state")),
        "actions": actions,
        "communicate_info": list(criteria.get("communicate_info") or ()),
        "env_assertions": _stated(criteria.get("env_assertions")) or [],
        "reward_basis": list(criteria.get("reward_basis") or _BASIS),
    }


def _criteria(task: Mapping[str, Any]) -> Mapping[str, Any]:
    return task.get("evaluation_criteria") or {}


def _stated(value: Any) -> Any:
    """Without the fields that say nothing: a release writes null where another writes nothing."""
    if isinstance(value, Mapping):
        return {key: _stated(item) for key, item in value.items() if item is not None}
    return [_stated(item) for item in value] if isinstance(value, list) else value
