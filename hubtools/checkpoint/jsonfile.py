"""Small JSON files of a checkpoint: errors that name the file, numbers that are numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hubtools.errors import CheckError


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`.

    Raises:
        CheckError: HT106 when the file is not there, not UTF-8 JSON or not an object.
    """
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise _unreadable(path, "file not found") from error
    except json.JSONDecodeError as error:
        raise _unreadable(Path(f"{path}:{error.lineno}"), error.msg) from error
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, str(error)) from error
    if not isinstance(value, dict):
        raise _unreadable(path, "not a JSON object")
    return value


def finite(value: Any) -> float | None:
    """A JSON number as a float; None for anything else, NaN, infinity or too large a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e300 else None


def _unreadable(place: Path, why: str) -> CheckError:
    return CheckError(
        "HT106",
        f"cannot read {place.name.split(':')[0]}: {why}",
        where=str(place),
        detail=("Nothing was written.",),
        next="restore the file from the training run, then run the same command again",
    )
