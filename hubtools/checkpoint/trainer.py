"""trainer_state.json: how far training had come when this checkpoint was saved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubtools.checkpoint.jsonfile import read_object

STATE = "trainer_state.json"


@dataclass(frozen=True, slots=True)
class TrainerState:
    """What a trainer wrote down; None where it did not.

    Args:
        path: the file.
        global_step, max_steps: optimizer steps done and planned.
        epoch, num_train_epochs: passes over the data, done and planned.
        train_batch_size: examples per device and forward pass.
        learning_rate: highest value in the log (the peak of the schedule, as far as it was logged).
        loss: last training loss in the log.
    """

    path: Path
    global_step: int | None
    max_steps: int | None
    epoch: float | None
    num_train_epochs: float | None
    train_batch_size: int | None
    learning_rate: float | None
    loss: float | None


def read_trainer_state(path: Path) -> TrainerState | None:
    """Read `path/trainer_state.json` when it is there.

    Raises:
        CheckError: HT106 when it is not a JSON object.
    """
    file = path / STATE
    if not file.is_file():
        return None
    fields = read_object(file)
    log = [entry for entry in fields.get("log_history") or () if isinstance(entry, dict)]
    rates = [rate for entry in log if (rate := _number(entry.get("learning_rate"))) is not None]
    losses = [loss for entry in log if (loss := _number(entry.get("loss"))) is not None]
    return TrainerState(
        path=file,
        global_step=_integer(fields.get("global_step")),
        max_steps=_integer(fields.get("max_steps")),
        epoch=_number(fields.get("epoch")),
        num_train_epochs=_number(fields.get("num_train_epochs")),
        train_batch_size=_integer(fields.get("train_batch_size")),
        learning_rate=max(rates, default=None),
        loss=losses[-1] if losses else None,
    )


def _number(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if usable and math.isfinite(value) else None


def _integer(value: Any) -> int | None:
    return value if type(value) is int else None
