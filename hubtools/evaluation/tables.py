"""Tables of figures: one protocol a table, one value for terminal, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hubtools.evaluation.captions import engine_words
from hubtools.evaluation.compare import Comparison, against, pairable
from hubtools.evaluation.protocol import POLICY, FieldDifference, differences
from hubtools.evaluation.records import Run
from hubtools.evaluation.repeats import same_checkpoint, same_record, standing
from hubtools.evaluation.score import (
    MACRO,
    WHOLE,
    Score,
    is_macro,
    metric_names,
    questions,
    scores,
)
from hubtools.evaluation.statistics_many import Selection
from hubtools.evaluation.table_notes import notes, picked, winners


@dataclass(frozen=True, slots=True)
class Row:
    """One checkpoint: its run, or the repeats of it.

    Args:
        label: the member, with a word on it where it needs one.
        runs: of the same weights under the same protocol.
        scores: every figure.
        floor: whether this is what a policy without a model scores.
        near_floor: metrics whose interval holds the floor.
    """

    label: str
    runs: tuple[Run, ...]
    scores: tuple[Score, ...]
    floor: bool = False
    near_floor: tuple[str, ...] = ()

    def score(self, metric: str, part: str = WHOLE) -> Score | None:
        """One figure, where it is there."""
        return next((s for s in self.scores if (s.metric, s.part) == (metric, part)), None)

    def to_json(self) -> dict[str, Any]:
        """JSON object; figures by part, then metric."""
        parts: dict[str, dict[str, Any]] = {}
        for score in self.scores:
            parts.setdefault(score.part or "all", {})[score.metric] = score.to_json()
        first = self.runs[0]
        return {
            **{"member": first.member, "weights": first.weights, "status": first.status},
            **{"seeds": [run.seed for run in self.runs], "floor": self.floor},
            **{"near_floor": list(self.near_floor), "figures": parts},
            "failures": sum(run.failures for run in self.runs),
            "failure_kinds": [dict(run.failure_kinds) for run in self.runs],
            "tiers": [dict(run.tiers) for run in self.runs],
            "runs": [{"path": str(run.path), "sha256": run.sha256} for run in self.runs],
        }


@dataclass(frozen=True, slots=True)
class MetricTable:
    """Checkpoints under one protocol.

    Args:
        metrics: names; `headline` is the part that stands first, `MACRO` or `WHOLE`.
        differs: how this protocol differs from that of the suite's first table.
        baseline: label of the row that the others are compared with; `by_default` where nobody
            named it and no row is called `base`.
        comparisons: of each checkpoint with the baseline.
        selection: what the lead of the best is worth, where one is marked.
        best: labels of the rows with the highest figure, where it is marked.
        several: whether there are other tables beside this one.
        brief: leave out micro means, categories, and intervals of all metrics but the first.
        notes: sentences that belong under the table.
    """

    suite: str
    title: str
    protocol_id: str
    metrics: tuple[str, ...]
    headline: str
    categories: tuple[str, ...]
    lines: tuple[Row, ...]
    differs: tuple[FieldDifference, ...]
    baseline: str = ""
    by_default: bool = False
    comparisons: tuple[Comparison, ...] = ()
    selection: Selection | None = None
    best: tuple[str, ...] = ()
    several: bool = False
    brief: bool = False
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Headings."""
        shown = [f"{self.headline} {name}".strip() for name in self.metrics]
        intervals = [text for name in shown for text in (name, f"{name} 95%")]
        if self.brief:
            return ("checkpoint", "suite", *intervals[:2], *shown[1:], *self._last)
        micro = [f"micro {name}" for name in self.metrics] if self.headline else []
        parts = [_plain(part) for part in self.categories]
        return ("checkpoint", "suite", *intervals, *micro, *parts, *self._last)

    @property
    def _last(self) -> tuple[str, ...]:
        return ("n", "failed", "protocol") if self.several else ("n", "failed")

    @property
    def caption(self) -> str:
        """The protocol, and what computed the answers."""
        runs = [run for row in self.lines if not row.floor for run in row.runs]
        engine = engine_words(runs or self.lines[0].runs)
        return f"protocol {self.protocol_id[:12]} · {engine}"

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """Cells as text."""
        return tuple(self._cells(row) for row in self.lines)

    def markdown(self) -> str:
        """The table with its notes."""
        lines = [self.columns, tuple("---" for _ in self.columns), *self.rows]
        table = ["| " + " | ".join(_escaped(cell) for cell in line) + " |" for line in lines]
        notes = [f"- {_escaped(note)}" for note in self.notes]
        return "\n".join([*table, "", f"- {_escaped(self.caption)}", *notes, ""])

    def to_json(self) -> dict[str, Any]:
        """JSON object."""
        plain = {"suite": self.suite, "title": self.title, "protocol_id": self.protocol_id}
        return {
            **plain,
            "metrics": list(self.metrics),
            "headline": self.headline or "all",
            "categories": list(self.categories),
            "rows": [row.to_json() for row in self.lines],
            "differs": [{"field": d.field, "here": d.b, "first": d.a} for d in self.differs],
            "comparisons": [
                {name: getattr(made, name) for name in made.__dataclass_fields__}
                for made in self.comparisons
            ],
            "selection": None
            if self.selection is None
            else {name: getattr(self.selection, name) for name in ("of", "lead", "by_chance")},
            "caption": self.caption,
            "baseline": self.baseline,
            "best": list(self.best),
            "notes": list(self.notes),
        }

    def _cells(self, row: Row) -> tuple[str, ...]:
        cells = []
        for name in self.metrics:
            score = row.score(name, self.headline)
            cells.append(_value(score))
            if name == self.metrics[0] or not self.brief:
                cells.append(_interval(score, near=name in row.near_floor))
        if not self.brief:
            rest = [row.score(name) for name in self.metrics] if self.headline else []
            rest += [row.score(self.metrics[0], part) for part in self.categories]
            cells += [_value(score, equal=False) for score in rest]
        n = max((score.n for score in row.scores if score.part == WHOLE), default=0)
        failed = sum(run.failures for run in row.runs)
        label = f"{row.label} (best)" if row.label in self.best else row.label
        which = [self.protocol_id[:12]] if self.several else []
        return (label, row.runs[0].suite, *cells, str(n), str(failed), *which)


def metric_tables(
    runs: Sequence[Run], *, baseline: str = "", best: bool = False
) -> list[MetricTable]:
    """One table per protocol, in the order in which the runs come.

    Runs of the same weights under one protocol are repeats and share a row. A run of a policy
    without a model is a floor: it stands in every table that asked the same.

    Args:
        runs: finished ones; the same run given twice counts once, one that another continues
            not at all.
        baseline: member that the others are compared with; `base` where empty, and the first row
            where it is not there.
        best: mark the best checkpoint, and say what its lead is worth.
    """
    kept = standing(list({run.sha256: run for run in runs}.values()))
    floors = [run for run in kept if run.protocol.get("backend") == POLICY]
    asked = [run for run in kept if run not in floors] or floors
    tables = []
    identities = dict.fromkeys(run.protocol_id for run in asked)
    for identity in identities:
        group = [run for run in asked if run.protocol_id == identity]
        below = [f for f in floors if f not in group and _same_questions(f, group[0])]
        table = _table(group, below, baseline=baseline)
        first = next(run for run in asked if run.suite == group[0].suite)
        differs = tuple(differences(first.protocol, group[0].protocol))
        table = replace(table, differs=differs, several=len(identities) > 1)
        if best and (selection := picked(table)):
            table = replace(table, selection=selection, best=winners(table))
        tables.append(replace(table, notes=tuple(notes(table))))
    return tables


def metric_json(run: Run) -> dict[str, dict[str, Any]]:
    """Metric → value, n, k where it is a proportion, and its interval."""
    return {score.metric: score.to_json() for score in scores([run]) if score.part == WHOLE}


def _table(group: Sequence[Run], floors: Sequence[Run], *, baseline: str) -> MetricTable:
    first = group[0]
    headline = MACRO if is_macro(first) else WHOLE
    lines = told_apart([_row(runs) for runs in _repeats(group)])
    below = told_apart([_row(runs, floor=True) for runs in _repeats(floors)])
    lines = [replace(row, near_floor=_near(row, below, headline)) for row in lines]
    metrics = tuple(metric_names(first))
    parts = [s.part for s in lines[0].scores if s.metric == metrics[0]]
    wanted = baseline or "base"
    called = [row for row in lines if wanted in (row.label, row.runs[0].member)]
    base = [*called, *lines][0]
    asked = questions(base.runs[0])
    others = [r for r in lines if r is not base and asked and questions(r.runs[0]) == asked]
    comparisons: list[Comparison] = []
    for metric in metrics:
        able = [row for row in others if pairable(row.runs, base.runs, metric, part=headline)]
        made = against(base.runs, [row.runs for row in able], metric, part=headline)
        comparisons += [
            replace(one, a=row.label, b=base.label) for row, one in zip(able, made, strict=True)
        ]
    return MetricTable(
        suite=first.suite,
        title=first.title,
        protocol_id=first.protocol_id,
        metrics=metrics,
        headline=headline,
        categories=tuple(part for part in parts if part not in (WHOLE, MACRO)),
        lines=(*lines, *below),
        differs=(),
        comparisons=tuple(comparisons),
        baseline=base.label,
        by_default=not called,
    )


def _row(runs: Sequence[Run], *, floor: bool = False) -> Row:
    first = runs[0]
    words = ["floor"] if floor else [] if first.status == "measured" else [first.status]
    label = f"{first.member} ({', '.join(words)})" if words else first.member
    return Row(label, tuple(runs), tuple(scores(runs)), floor)


def told_apart(rows: Sequence[Row]) -> list[Row]:
    """Rows of one name with what tells them apart: weights, else seed, else folder of the run."""
    words: list[Callable[[Run], str]] = [
        lambda run: f"weights {run.weights[:8]}" if run.weights else "weights unknown",
        lambda run: f"seed {run.seed}",
        lambda run: "/".join(run.path.parent.parts[-2:]),
        lambda run: str(run.path.parent),
    ]
    found = list(rows)
    for word in words:
        several: dict[str, set[str]] = {}
        for row in found:
            several.setdefault(row.label, set()).add(word(row.runs[0]))
        found = [
            replace(row, label=f"{row.label} [{word(row.runs[0])}]")
            if len(several[row.label]) > 1
            else row
            for row in found
        ]
    return found


def _repeats(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs of the same member, files, status and questions, together; of a model that nobody can
    prove to be the same, each for itself.
    """
    groups: list[list[Run]] = []
    for run in runs:
        group = next((g for g in groups if all(_repeat(run, other) for other in g)), None)
        if group is None:
            groups.append([run])
        else:
            group.append(run)
    return groups


def _repeat(a: Run, b: Run) -> bool:
    if (a.member, a.status, questions(a)) != (b.member, b.status, questions(b)):
        return False
    if a.status == "reported" and a.weights == b.weights == "":
        return a.seed != b.seed  # nothing but the author's word, which the row says
    without_model = a.protocol.get("backend") == POLICY
    return without_model or same_checkpoint(a, b) or same_record(a, b)


def _same_questions(a: Run, b: Run) -> bool:
    return bool(a.protocol["suite"] == b.protocol["suite"])


def _near(row: Row, floors: Sequence[Row], headline: str) -> tuple[str, ...]:
    near = []
    for floor in floors:
        for score in row.scores:
            level = floor.score(score.metric, headline)
            if score.part == headline and level is not None and score.interval is not None:
                if score.interval.low <= level.value <= score.interval.high:
                    near.append(score.metric)
    return tuple(dict.fromkeys(near))


def _value(score: Score | None, *, equal: bool = True) -> str:
    if score is None:
        return "—"
    spread = score.repeats
    if spread is None or spread.sd == 0:
        said = f" ({score.runs} equal runs)" if equal and score.runs > 1 else ""
        return f"{score.value:.3f}{said}"
    if spread.k == 2:
        return " and ".join(f"{value:.3f}" for value in spread.values)
    return f"{spread.mean:.3f} (SD {spread.sd:.3f} of {spread.k} runs)"


def _interval(score: Score | None, *, near: bool) -> str:
    if score is None or score.interval is None:
        return "not known"
    shown = f"{score.interval.low:.3f}–{score.interval.high:.3f}"
    return f"{shown}, holds the floor" if near else shown


def _plain(text: str) -> str:
    return " ".join(text.split())


def _escaped(text: str) -> str:
    return _plain(text).replace("|", "\\|")
