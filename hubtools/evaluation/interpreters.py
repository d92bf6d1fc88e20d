"""Interpreters of other environments: which one is meant, and what it holds.

Engines and foreign harnesses pin packages that do not fit ours, so they live apart; nothing of
theirs is imported here.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

_PROBE = """
import json, platform, sys
from importlib.metadata import PackageNotFoundError, distribution
found = {"python": platform.python_version()}
for name in sys.argv[2:]:
    try:
        found[name] = distribution(name).version
    except PackageNotFoundError:
        continue
    if sys.argv[1]:
        found.setdefault("root", str(distribution(name).locate_file(sys.argv[1])))
print(json.dumps(found))
"""


def interpreters(variable: str, venv: str, named: Path | None = None) -> Iterator[Path]:
    """Where to look, in order: `named`, the variable alone, else `venv` here and in the checkout.

    Args:
        variable: environment variable that names an interpreter.
        venv: folder that a target of the Makefile makes.
        named: what the user said; nothing else is looked at then.
    """
    said = named or (Path(text) if (text := os.environ.get(variable)) else None)
    if said is not None:
        yield said.absolute()
        return
    checkout = Path(__file__).resolve().parents[2]
    for folder in (Path.cwd(), checkout):
        yield folder / venv / "bin" / "python"


def packages(python: Path, names: tuple[str, ...], *, root: str = "") -> dict[str, str]:
    """Versions of `python` and of those of `names` that are installed there.

    An interpreter is asked once, until packages are installed or removed.

    Args:
        python: the interpreter.
        names: of distributions.
        root: a folder of the first of them, whose place is told as `root`.

    Raises:
        OSError, ValueError, subprocess.SubprocessError: it cannot be asked.
    """
    sites = python.absolute().parent.parent.glob("lib/python*/site-packages")
    stamps = tuple(path.stat().st_mtime_ns for path in (python, *sorted(sites)))
    return dict(_asked(python, names, root, stamps))


@lru_cache(maxsize=8)
def _asked(
    python: Path, names: tuple[str, ...], root: str, stamps: tuple[int, ...]
) -> dict[str, str]:
    # -P: a transformers.py in the user's folder is not the package
    command = [str(python), "-P", "-c", _PROBE, root, *names]
    told = subprocess.run(command, capture_output=True, timeout=60, check=True)
    found: dict[str, str] = json.loads(told.stdout)
    return found
