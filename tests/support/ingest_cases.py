"""Trainer directories to damage, and how their refusal must look."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_dirs import model_of, save_side_files

from hubtools.errors import CheckError


def refused(id: str, run: Callable[[], Any], *words: str) -> CheckError:
    """The error has this id, says these words, and names a next step."""
    with pytest.raises(CheckError) as caught:
        run()
    error = caught.value
    text = "\n".join([error.message, *error.detail, error.next])
    assert error.id == id, error
    assert all(word in text for word in words), text
    assert error.next
    return error


def actor(run: Path) -> Path:
    return run / "global_step_7" / "actor"


def rank_file(run: Path, rank: int) -> Path:
    return actor(run) / f"model_world_size_4_rank_{rank}.pt"


def whole(tmp_path: Path, name: str, edit: Callable[[dict[str, Any]], None]) -> Path:
    """A directory with one pickle of all weights, edited."""
    run = tmp_path / "run"
    save_side_files(run, name)
    state = {key: value.clone() for key, value in model_of(name).state_dict().items()}
    edit(state)
    torch.save(state, run / "pytorch_model.bin")
    return run
