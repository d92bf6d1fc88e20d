"""Values from untrusted logs, made fit to keep: names, times, roles (pure)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hubtools.logs.records import Missing


def name(value: Any) -> str:
    """A name as it may be shown: one line, printable, not endless; empty when it is no text."""
    if not isinstance(value, str):
        return ""
    text = value.strip()[:200]
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "?" for char in text)


def names(value: Any) -> tuple[str, ...]:
    """The names in a list."""
    return tuple(filter(None, map(name, value))) if isinstance(value, list) else ()


def role(value: Any) -> str:
    """A role as a key: lower case, `unknown` when there is none."""
    text = value.strip().lower() if isinstance(value, str) else ""
    return re.sub(r"[^a-z0-9_-]+", "_", text)[:40].strip("_") or "unknown"


def seconds(value: Any) -> float | None:
    """A Unix time in seconds, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # A number beyond any date, also one too big for a float, is no date.
    return float(value) if abs(value) < 1e15 and math.isfinite(value) else None


def iso_seconds(value: Any) -> float | None:
    """Unix seconds of an ISO 8601 time (nanoseconds too; UTC when it names no zone)."""
    if not isinstance(value, str):
        return None
    try:
        when = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", value.strip()[:60]))
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def missing(response: Mapping[str, Any], key: str = "model") -> Missing:
    """Why the name at `key` cannot be used; empty when it can."""
    if key not in response or response[key] == "":
        return "absent"
    if response[key] is None:
        return "null"
    return "" if name(response[key]) else "not text"


def part(value: Any, *path: str) -> Any:
    """The value below `path` in nested objects, None where the path ends early."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def objects(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; empty when it is none."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
