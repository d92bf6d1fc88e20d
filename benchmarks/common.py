"""What every benchmark shares: one JSON object a line, and `--quick`."""

from __future__ import annotations

import argparse
import json
from typing import Any


def quick() -> bool:
    """Whether `--quick` was given: the short run, which has its own targets."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="end within a minute")
    return bool(parser.parse_args().quick)


def emit(
    measure: str, value: float, unit: str, peer: Any, target: float, ok: bool, **extra: Any
) -> None:
    """Print one measurement.

    Args:
        measure: what was measured, `area: quantity`.
        value: rounded here for reading; decide `ok` from the unrounded value.
        unit: of value and target.
        peer: figures of the other sides, measured in the same run.
        target: what was promised.
        ok: whether the promise holds.
        extra: commands, shapes, number of runs.
    """
    line = {"measure": measure, "value": float(f"{value:.4g}"), "unit": unit, "peer": peer}
    print(json.dumps({**line, "target": target, "ok": ok, **extra}), flush=True)
