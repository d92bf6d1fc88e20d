"""Which training step a directory holds, and who says so: a trainer's own state, or only a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hubtools.checkpoint.kinds import named_step
from hubtools.checkpoint.trainer import STATE, TrainerState
from hubtools.errors import Finding

_PARENTS = 3


@dataclass(frozen=True, slots=True)
class Step:
    """One statement of the step.

    Args:
        value: optimizer steps done.
        source: the file and field, or the directory.
        claim: whether only a name says so; a directory can be renamed.
    """

    value: int
    source: str
    claim: bool


def steps_of(path: Path, trainer: TrainerState | None) -> tuple[Step, ...]:
    """Every statement about the step of `path`, the strongest first.

    Names of the directory and of the ones above it count up to the first that is a step:
    `global_step_100/actor/huggingface` is step 100.
    """
    found: list[Step] = []
    if trainer is not None and trainer.global_step is not None:
        found.append(Step(trainer.global_step, f"{STATE}:/global_step", claim=False))
    latest = path / "latest"  # DeepSpeed's
    if latest.is_file() and latest.stat().st_size < 100:
        word = latest.read_text(encoding="utf-8", errors="replace").strip()
        if (value := named_step(word)) is not None:
            found.append(Step(value, f"latest: {word}", claim=True))
    absolute = path.resolve()
    for folder in [absolute, *absolute.parents][:_PARENTS]:
        if (value := named_step(folder.name)) is not None:
            found.append(Step(value, f"directory name {folder.name}", claim=True))
            break
    return tuple(found)


def step_findings(steps: Sequence[Step], path: Path) -> list[Finding]:
    """HT178 when the statements disagree."""
    if len({step.value for step in steps}) < 2:
        return []
    told = " and ".join(f"{step.value} ({step.source})" for step in steps)
    message = f"which step is this? {told}"
    fix = "find out which is true, then rename the directory"
    return [Finding("HT178", "warning", message, where=str(path), next=fix)]
