"""The log formats that are known: ours, the special ones first, then other packages'."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from hubtools.errors import EnvironmentFailure
from hubtools.logs.exchange import LogReader
from hubtools.logs.forms import (
    bare,
    har,
    inspect_ai,
    litellm,
    mini_swe_agent,
    openhands,
    otel,
    pairs,
    silent,
    swe_agent,
    tau2,
    vcr,
)

GROUP = "hubtools.log_readers"
"""Entry points of other packages' readers; each names a `LogReader`."""

OWN: tuple[LogReader, ...] = (
    tau2.READER,
    inspect_ai.READER,
    vcr.READER,
    har.READER,
    litellm.READER,
    swe_agent.READER,
    mini_swe_agent.READER,
    openhands.READER,
    otel.READER,
    silent.TAU_BENCH,
    silent.VERL,
    silent.DISTILABEL,
    pairs.READER,
    bare.READER,
)


def reader_of(value: Mapping[str, Any]) -> LogReader | None:
    """The reader that an object fits, None when none does.

    Raises:
        EnvironmentFailure: HT213 when another package's reader cannot be loaded.
    """
    return next((reader for reader in (*OWN, *_others()) if reader.fits(value)), None)


@cache
def _others() -> tuple[LogReader, ...]:
    found = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            reader = point.load()
        except Exception as error:  # another package's code may fail in any way
            raise _refused(point.name, point.value, f"{type(error).__name__}: {error}") from error
        if not isinstance(reader, LogReader):
            raise _refused(point.name, point.value, "it is no hubtools.logs.exchange.LogReader")
        found.append(reader)
    return tuple(found)


def _refused(point: str, value: str, why: str) -> EnvironmentFailure:
    return EnvironmentFailure(
        "HT213",
        f"the log reader {point!r} of another package cannot be loaded; nothing was verified",
        where=f"entry point {GROUP}: {point} = {value}",
        detail=(why[:300],),
        next="uninstall that package, or have it corrected (pip list names what is installed)",
    )
