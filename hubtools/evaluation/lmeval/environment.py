"""The environment that holds lm-eval: its interpreter and its versions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from hubtools.errors import EnvironmentFailure

VARIABLE = "HUBTOOLS_LM_EVAL_PYTHON"
VERSION = (0, 4, 13)
"""The oldest release whose files and classes are known."""

_OWN = Path(".venv-lm-eval", "bin", "python")
_NAMES = ("lm_eval", "datasets", "transformers")
_PROBE = f"""
import json
from importlib.metadata import PackageNotFoundError, version
found = {{}}
for name in {_NAMES!r}:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def lm_eval_python() -> Path:
    """The first of: the variable HUBTOOLS_LM_EVAL_PYTHON, `.venv-lm-eval` in the working directory
    or in the checkout (`make lm-eval-env`), our own interpreter when it has lm-eval.

    Raises:
        EnvironmentFailure: HT451 none of them is there, or its lm-eval is too old.
    """
    named = os.environ.get(VARIABLE)
    checkout = Path(__file__).resolve().parents[3]
    places = (Path.cwd() / _OWN, checkout / _OWN, Path(sys.executable))
    for python in (Path(named),) if named else places:
        if python.is_file() and "lm_eval" in (found := versions(python)):
            if _numbers(found["lm_eval"]) >= VERSION:
                return python
            wanted = ".".join(map(str, VERSION))
            raise _none(f"lm-eval {wanted} or newer is needed, found {found['lm_eval']}", python)
    raise _none("no environment with lm-eval was named or found", named or "")


def versions(python: Path) -> dict[str, str]:
    """lm-eval and what its figures depend on, as far as they are installed.

    Raises:
        EnvironmentFailure: HT451 the interpreter cannot be asked.
    """
    sites = python.absolute().parent.parent.glob("lib/python*/site-packages")
    stamps = tuple(path.stat().st_mtime_ns for path in (python, *sorted(sites)))
    return dict(_probed(python, stamps))


@lru_cache(maxsize=8)
def _probed(python: Path, stamps: tuple[int, ...]) -> dict[str, str]:
    try:
        told = subprocess.run(
            [str(python), "-P", "-c", _PROBE], capture_output=True, timeout=60, check=True
        )
        found: dict[str, str] = json.loads(told.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise _none(f"the interpreter cannot be asked: {error}", python) from error
    return found


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _none(message: str, where: Path | str) -> EnvironmentFailure:
    return EnvironmentFailure(
        "HT451",
        message,
        where=str(where),
        detail=(f"Looked at {VARIABLE}, .venv-lm-eval and here. Nothing was started.",),
        next=f"make lm-eval-env, or {VARIABLE}=PATH of an interpreter that has it",
    )
