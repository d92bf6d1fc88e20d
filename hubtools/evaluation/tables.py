"""Rows of figures for the terminal and `--json`; runs under different protocols never share one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hubtools.evaluation.protocol import differing_fields
from hubtools.evaluation.records import Run


@dataclass(frozen=True, slots=True)
class MetricTable:
    """Runs of one protocol.

    Args:
        columns, rows: text, one row per run.
        differs: fields in which this protocol differs from that of the first table.
    """

    suite: str
    protocol_id: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    differs: tuple[str, ...]


def metric_tables(runs: Sequence[Run]) -> list[MetricTable]:
    """One table per protocol, in the order in which the runs come."""
    tables = []
    for identity in dict.fromkeys(run.protocol_id for run in runs):
        group = [run for run in runs if run.protocol_id == identity]
        metrics = list(group[0].metrics)
        tables.append(
            MetricTable(
                suite=group[0].suite,
                protocol_id=identity,
                columns=("checkpoint", "suite", *_with_intervals(metrics), "n", "failed"),
                rows=tuple(_row(run, metrics) for run in group),
                differs=tuple(differing_fields(runs[0].protocol, group[0].protocol)),
            )
        )
    return tables


def metric_json(run: Run) -> dict[str, dict[str, Any]]:
    """Metric → value, n, k where it is a proportion, and its interval."""
    figures = {}
    for name, metric in run.metrics.items():
        sure = run.interval(name)
        interval = {"low": sure.low, "high": sure.high, "level": sure.level, "method": sure.method}
        figures[name] = {**metric, "interval": interval}
    return figures


def _with_intervals(metrics: Sequence[str]) -> list[str]:
    return [text for name in metrics for text in (name, f"{name} 95%")]


def _row(run: Run, metrics: Sequence[str]) -> tuple[str, ...]:
    cells = []
    for name in metrics:
        sure = run.interval(name)
        cells += [f"{sure.value:.3f}", f"{sure.low:.3f}–{sure.high:.3f}"]
    return (run.member, run.suite, *cells, str(run.n), str(run.failures))
