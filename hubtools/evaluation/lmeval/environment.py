"""The environment that holds lm-eval: its interpreter and its versions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hubtools.errors import EnvironmentFailure
from hubtools.evaluation.interpreters import interpreters, packages

VARIABLE = "HUBTOOLS_LM_EVAL_PYTHON"
VERSION = (0, 4, 13)
"""The oldest release whose files and classes are known."""


def lm_eval_python() -> Path:
    """The first of: the variable HUBTOOLS_LM_EVAL_PYTHON, `.venv-lm-eval` in the working directory
    or in the checkout (`make lm-eval-env`), our own interpreter when it has lm-eval.

    Raises:
        EnvironmentFailure: HT451 none of them is there, or its lm-eval is too old.
    """
    places = list(interpreters(VARIABLE, ".venv-lm-eval"))
    if VARIABLE not in os.environ:
        places.append(Path(sys.executable))
    for python in places:
        if python.is_file() and (found := version(python)):
            if tuple(int(part) for part in found.split(".") if part.isdigit()) >= VERSION:
                return python
            wanted = ".".join(map(str, VERSION))
            raise _none(f"lm-eval {wanted} or newer is needed, found {found}", python)
    raise _none("no environment with lm-eval was named or found", "")


def version(python: Path) -> str:
    """Of lm-eval there; empty without.

    Raises:
        EnvironmentFailure: HT451 the interpreter cannot be asked.
    """
    try:
        return packages(python, ("lm_eval",)).get("lm_eval", "")
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise _none(f"the interpreter cannot be asked: {error}", python) from error


def _none(message: str, where: Path | str) -> EnvironmentFailure:
    return EnvironmentFailure(
        "HT451",
        message,
        where=str(where),
        detail=(f"Looked at {VARIABLE}, .venv-lm-eval and here. Nothing was started.",),
        next=f"make lm-eval-env, or {VARIABLE}=PATH of an interpreter that has it",
    )
