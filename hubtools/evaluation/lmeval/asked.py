"""What a suite's name asks of lm-eval: `lm_eval:TASK[,TASK…][@FOLDER]`. Pure.

FOLDER holds task files of one's own and is looked at beside lm-eval's.
"""

from __future__ import annotations

from dataclasses import dataclass

from hubtools.errors import UsageError

PREFIX = "lm_eval:"


@dataclass(frozen=True, slots=True)
class Asked:
    """Tasks by name, and a folder of further ones; empty without."""

    tasks: tuple[str, ...]
    include: str = ""


def asked(suite: str) -> Asked:
    """Take a suite's name apart.

    Raises:
        UsageError: HT450 it names no task, or one twice.
    """
    names, _, include = suite.removeprefix(PREFIX).partition("@")
    tasks = tuple(name.strip() for name in names.split(","))
    if not all(tasks) or len(set(tasks)) < len(tasks):
        raise UsageError(
            "HT450",
            f"{suite!r} names no task, or one twice",
            detail=("Nothing was started.",),
            next="write it as lm_eval:TASK, lm_eval:TASK,TASK or lm_eval:TASK@FOLDER",
        )
    return Asked(tasks, include)
