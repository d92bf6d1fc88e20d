"""trainer_state.json: how far training had come when this checkpoint was saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubtools.checkpoint.jsonfile import finite, read_object

STATE = "trainer_state.json"


@dataclass(frozen=True, slots=True)
class TrainerState:
    """What a trainer wrote down; None where it did not.

    Args:
        path: the file.
        global_step: optimizer steps done.
        max_steps: optimizer steps planned.
        epoch: passes over the data done.
        num_train_epochs: passes over the data planned.
        train_batch_size: examples per device and forward pass.
        learning_rate: highest value in the log (the peak of the schedule, as far as it was logged).
        loss: last training loss in the log.
        pointers: for each value that is there, the JSON pointer it was read at.
    """

    path: Path
    global_step: int | None
    max_steps: int | None
    epoch: float | None
    num_train_epochs: float | None
    train_batch_size: int | None
    learning_rate: float | None
    loss: float | None
    pointers: Mapping[str, str]


def read_trainer_state(path: Path) -> TrainerState | None:
    """Read `path/trainer_state.json` when it is there.

    Raises:
        CheckError: HT106 when it is not a JSON object.
    """
    file = path / STATE
    if not file.is_file():
        return None
    fields = read_object(file)
    rates, losses = _logged(fields, "learning_rate"), _logged(fields, "loss")
    values: dict[str, Any] = {
        "global_step": _integer(fields.get("global_step")),
        "max_steps": _integer(fields.get("max_steps")),
        "epoch": finite(fields.get("epoch")),
        "num_train_epochs": finite(fields.get("num_train_epochs")),
        "train_batch_size": _integer(fields.get("train_batch_size")),
    }
    pointers = {name: f"/{name}" for name, value in values.items() if value is not None}
    values["learning_rate"], values["loss"] = None, None
    if rates:
        values["learning_rate"], pointers["learning_rate"] = max(rates, key=lambda rate: rate[0])
    if losses:
        values["loss"], pointers["loss"] = losses[-1]
    return TrainerState(path=file, pointers=pointers, **values)


def _logged(fields: Mapping[str, Any], name: str) -> list[tuple[float, str]]:
    log = fields.get("log_history")
    return [
        (number, f"/log_history/{index}/{name}")
        for index, entry in enumerate(log if isinstance(log, list) else ())
        if isinstance(entry, dict) and (number := finite(entry.get(name))) is not None
    ]


def _integer(value: Any) -> int | None:
    return value if type(value) is int and finite(value) is not None else None
