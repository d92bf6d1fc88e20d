"""Folders of runs: `<out>/<suite>/<n>/`, append-only, each claimed by its `about.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval_harness.record import RUN
from eval_harness.runner import ABOUT
from hubtools.errors import CheckError
from hubtools.evaluation.records import read_run

_SAME = ("plan_id", "weights", "model_files", "endpoint", "member", "requested", "seed")


def finished(runs: Path, about: Mapping[str, Any]) -> Path | None:
    """Folder of the latest finished run that `about` describes and whose figures hold."""
    for folder in reversed(_claimed(runs, about)):
        if (folder / RUN).is_file() and _sound(folder):
            return folder
    return None


def unfinished(runs: Path, about: Mapping[str, Any]) -> Path | None:
    """Folder of the run that `about` describes and that is to be gone on with."""
    for folder in _claimed(runs, about):
        if not (folder / RUN).is_file():
            return folder
    return None


def taken_in(runs: Path, about: Mapping[str, Any]) -> Path | None:
    """Folder of the finished run whose claim says all of `about`: results imported before."""
    for folder in (runs / str(number) for number in _numbers(runs)):
        same = {name: told(folder).get(name) for name in about} == dict(about)
        if same and (folder / RUN).is_file():
            return folder
    return None


def fresh(runs: Path) -> Path:
    """The next free number."""
    numbers = _numbers(runs)
    return runs / str(numbers[-1] + 1 if numbers else 1)


def told(folder: Path) -> dict[str, Any]:
    """What `about.json` says; empty when it cannot be read."""
    try:
        known = json.loads((folder / ABOUT).read_bytes())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def record_of(folder: Path) -> dict[str, Any]:
    """The run's record, and under `path` the file that holds it."""
    path = folder / RUN
    return {**json.loads(path.read_bytes()), "path": str(path)}


def _claimed(runs: Path, about: Mapping[str, Any]) -> list[Path]:
    folders = [runs / str(number) for number in _numbers(runs)]
    return [folder for folder in folders if _same(told(folder), about)]


def _same(known: Mapping[str, Any], about: Mapping[str, Any]) -> bool:
    return bool(known) and all(known.get(key, "") == about.get(key, "") for key in _SAME)


def _numbers(runs: Path) -> list[int]:
    if not runs.is_dir():
        return []
    return sorted(int(path.name) for path in runs.iterdir() if path.name.isdecimal())


def _sound(folder: Path) -> bool:
    """Whether a finished run can be read back; a damaged one stays where it is and is not used."""
    try:
        read_run(folder)
    except CheckError:
        return False
    return True
