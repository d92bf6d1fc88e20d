"""Harnesses of other people by the name of their suites: lm-eval and tau2-bench.

Each has a module with `planned_protocol(cell)` and a function that runs a cell and leaves the two
files of a run in its folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hubtools.evaluation.spec import Cell


@dataclass(frozen=True, slots=True)
class Foreign:
    """A harness that is not ours.

    Args:
        planned: protocol of a cell, nothing started.
        run: takes cell, server and folder, and by name `about`, `log` and `progress`.
    """

    planned: Callable[[Cell], dict[str, Any]]
    run: Callable[..., object]


def harness_of(suite: str) -> Foreign | None:
    """The harness whose suite this is; None for our own."""
    if suite.startswith("lm_eval:"):
        from hubtools.evaluation.lmeval import run as lmeval

        return Foreign(lmeval.planned_protocol, lmeval.run_lm_eval)
    if suite == "tau2_airline":
        from hubtools.evaluation.tau2 import run as tau2

        return Foreign(tau2.planned_protocol, tau2.run_tau2)
    return None


def slug(suite: str) -> str:
    """Name of the folder of a foreign suite's runs; empty for our own suites."""
    if suite.startswith("lm_eval:") or suite == "tau2_airline":
        return re.sub(r"[^\w.-]+", "-", suite).strip("-.")[:100]
    return ""
