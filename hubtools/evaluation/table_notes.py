"""The sentences under a table: what its figures rest on, and what they cannot show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from hubtools.evaluation.compare import item_means
from hubtools.evaluation.repeats import distinct
from hubtools.evaluation.score import MACRO, WHOLE, Score, has_samples, pooled, questions
from hubtools.evaluation.statistics_many import Selection, macro_weights, selection
from hubtools.evaluation.statistics_paired import unpaired_difference

if TYPE_CHECKING:
    from hubtools.evaluation.tables import MetricTable, Row

SMALL = 0.02
"""A table that shows smaller differences than this needs no remark on its size."""


def notes(table: MetricTable) -> list[str]:
    """Every note that applies, in a fixed order."""
    return [
        *_protocol(table),
        *_sizes(table),
        *_kinds(table),
        *_repeats(table),
        *_comparisons(table),
        *_others(table),
        *_selection(table),
        *_floor(table),
        *_failures(table),
        *_cut_off(table),
        *_tiers(table),
        *_passes(table),
        *_missing(table),
    ]


def picked(table: MetricTable) -> Selection | None:
    """What the lead of the best checkpoint is worth, on the first metric's headline."""
    grids = [pooled(row.runs, table.metrics[0]) for row in _candidates(table)]
    if len(grids) < 2 or any(grid.items != grids[0].items for grid in grids):
        return None
    scored = np.all([grid.counts > 0 for grid in grids], axis=0)
    if not scored.any():
        return None
    means = np.stack([item_means(grid, np.flatnonzero(scored)) for grid in grids], axis=1)
    if table.headline == MACRO:
        means *= macro_weights([grids[0].categories[at] for at in np.flatnonzero(scored)])[:, None]
    return selection(means)


def winners(table: MetricTable) -> tuple[str, ...]:
    """Labels of the rows whose first metric's headline is the highest."""
    shown = [(row.score(table.metrics[0], table.headline), row.label) for row in _candidates(table)]
    values = {label: score.value for score, label in shown if score}
    return tuple(label for label, value in values.items() if value == max(values.values()))


def _candidates(table: MetricTable) -> list[Row]:
    return [
        row
        for row in table.lines
        if not row.floor
        and row.score(table.metrics[0], table.headline)
        and all(has_samples(run, table.metrics[0]) for run in row.runs)
    ]


def _protocol(table: MetricTable) -> Iterator[str]:
    if table.differs:
        said = "; ".join(f"{d.field}: {d.b} here, {d.a} there" for d in table.differs)
        yield f"not comparable with the first table, which has another protocol: {said}"


def _sizes(table: MetricTable) -> Iterator[str]:
    """Effective numbers of questions, and what they cannot show."""
    first = table.lines[0]
    of = [(part, first.score(table.metrics[0], part)) for part in table.categories]
    if sizes := [(part, score.items) for part, score in of if score]:
        yield "questions: " + ", ".join(f"{part} {items}" for part, items in sizes)
    wanted = first.runs[0].protocol.get("suite", {}).get("sample", {}).get("limit")
    for part, items in sizes if isinstance(wanted, int) else ():
        if items < wanted:
            yield f"{part} has {items} questions; {wanted} were asked for"
    whole = first.score(table.metrics[0])
    if whole is None:
        return
    least, how = _resolvable(table, whole)
    if least and max(least) > SMALL:
        said = " to ".join(dict.fromkeys(f"{bound:.2f}" for bound in (min(least), max(least))))
        yield f"{whole.items} questions: differences below {said} cannot be seen, {how}"


def _resolvable(table: MetricTable, whole: Score) -> tuple[list[float], str]:
    """In pairs where pairs were made, else what two such checkpoints could differ by unseen."""
    headline = f"{table.headline} {table.metrics[0]}".strip()
    made = [one.resolvable for one in table.comparisons if one.metric == headline]
    if made or whole.interval is None:
        return made, "question by question"
    alone = unpaired_difference(whole.interval, whole.interval).resolvable
    return [alone], "with figures alone (less in pairs)"


def _kinds(table: MetricTable) -> Iterator[str]:
    kinds: dict[str, list[str]] = {}
    for row in table.lines:
        for score in row.scores:
            if score.part == table.headline and score.interval is not None:
                kinds.setdefault(score.interval.method, []).append(score.name)
    said = "; ".join(f"{', '.join(dict.fromkeys(names))}: {how}" for how, names in kinds.items())
    if said:
        yield f"intervals of 95 %, how they were made: {said}"


def _repeats(table: MetricTable) -> Iterator[str]:
    for row in table.lines:
        score = row.score(table.metrics[0], table.headline)
        if score is not None and 1 < len(own := distinct(row.runs)) < len(row.runs):
            yield f"{row.label}: {len(own)} of {len(row.runs)} runs differ; equal ones count once"
        if score is None or score.repeats is None or score.repeats.sd == 0:
            continue
        spread, one_run = score.repeats, max(1, score.n // score.repeats.k)
        unsure = f"itself ±{spread.sd_uncertainty:.0%} for {spread.k} runs"
        yield (
            f"{row.label}: SD of {spread.k} runs {spread.sd:.3f} ({unsure});"
            f" {one_run} independent answers alone give {spread.sampling_sd(one_run):.3f}"
        )


def _comparisons(table: MetricTable) -> Iterator[str]:
    if table.by_default and table.comparisons:
        yield f"compared with {table.baseline}, the first row (choose one with --baseline)"
    yield from (str(made) for made in table.comparisons)
    corrected = [made for made in table.comparisons if made.p_holm is not None]
    if corrected:
        count = len({made.a for made in corrected})
        yield f"p corrected by Holm for {count} comparisons with {corrected[0].b} on each metric"


def _others(table: MetricTable) -> Iterator[str]:
    base = next(row for row in table.lines if row.label == table.baseline)
    asked = questions(base.runs[0])
    for row in (row for row in table.lines if not row.floor):
        if (other := questions(row.runs[0])) != asked:
            why = f"other questions than {base.label}" if other else "figures alone"
            yield f"{row.label}: {why}, not compared"
        elif table.headline == MACRO and other and row.score(table.metrics[0], MACRO) is None:
            grid = pooled(row.runs, table.metrics[0])
            none = [part for part in dict.fromkeys(grid.categories) if not grid.only(part).n]
            yield f"{row.label}: no macro mean, nothing was scored in {', '.join(none)}"
        elif row is not base and row.label not in {made.a for made in table.comparisons}:
            yield f"{row.label}: not compared, too little was scored there or in {base.label}"


def _selection(table: MetricTable) -> Iterator[str]:
    found = table.selection
    if found is None:
        return
    name = f"{table.headline} {table.metrics[0]}".strip()
    equal = " (equal)" if len(table.best) > 1 else ""
    yield (
        f"best on {name}: {' and '.join(table.best)}{equal}, picked from {found.of};"
        f" it lies {found.lead:.3f} above"
        f" their mean, and the best of {found.of} equals would lie {found.by_chance:.3f} above it"
        " by chance"
    )


def _floor(table: MetricTable) -> Iterator[str]:
    for row in table.lines:
        if row.floor:
            yield f"{row.label}: what a policy scores that answers without a model"
        for metric in row.near_floor:
            yield f"{row.label}: {metric} cannot be told from the floor"


def _failures(table: MetricTable) -> Iterator[str]:
    for row in table.lines:
        failed = sum(run.failures for run in row.runs)
        if not failed:
            continue
        kinds = _summed(row, "failure_kinds")
        why = f" ({', '.join(f'{kind} {count}' for kind, count in kinds.items())})" if kinds else ""
        asked = sum(run.failures + run.n for run in row.runs)
        both = [
            f"{score.metric} {score.value:.3f} without them, {score.as_zero:.3f} with them as 0"
            for score in row.scores
            if score.part == WHOLE and score.as_zero is not None
        ]
        yield "; ".join([f"{row.label}: {failed} of {asked} samples failed{why}", *both])


def _cut_off(table: MetricTable) -> Iterator[str]:
    for row in table.lines:
        if cut := sum(run.cut_off for run in distinct(row.runs)):
            n = sum(run.n for run in distinct(row.runs))
            yield f"{row.label}: {cut} of {n} answers were cut off (tokens, turns or context)"


def _tiers(table: MetricTable) -> Iterator[str]:
    for row in table.lines:
        if found := _summed(row, "tiers"):
            said = ", ".join(f"rung {tier}: {count}" for tier, count in sorted(found.items()))
            yield f"{row.label}: answers by the extractor's rung that found them: {said}"


def _passes(table: MetricTable) -> Iterator[str]:
    for row in table.lines:
        for score in row.scores:
            if score.part == WHOLE and score.passes:
                said = ", ".join(f"{name} {c.value:.3f}" for name, c in score.passes.items())
                yield f"{row.label}: {score.metric} {said}"


def _missing(table: MetricTable) -> Iterator[str]:
    for row in table.lines:
        missing = dict.fromkeys(name for run in row.runs for name in run.missing)
        if missing:
            yield f"{row.label}: not recorded: {', '.join(missing)}"


def _summed(row: Row, name: str) -> dict[str, int]:
    total: Counter[str] = Counter()
    for run in row.runs:
        total.update({str(key): int(count) for key, count in getattr(run, name).items()})
    return dict(total)
