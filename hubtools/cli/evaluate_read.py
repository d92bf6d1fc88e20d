"""`hubtools evaluate show | samples | table | compare`: what the kept runs say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubtools.cli.evaluateview import print_tables, runs_at, runs_json
from hubtools.cli.options import with_output
from hubtools.cli.output import Output
from hubtools.errors import ExitCode

if TYPE_CHECKING:
    from hubtools.evaluation.records import Run

_RUN = click.Path(exists=True, path_type=Path)
_EXCERPT = 60


@click.command("show", short_help="Show runs with all that is known about them.")
@click.argument("paths", nargs=-1, required=True, metavar="RUN...", type=_RUN)
@with_output
def show(output: Output, paths: tuple[Path, ...]) -> None:
    """Show runs with all that is known about them.

    RUN is a run's folder, its run.json, or a folder with runs below it. Every figure is computed
    again from the samples first.
    """
    runs = runs_at(paths, output.note)
    output.result("hubtools.evaluate-show/1", {"runs": runs_json(runs)})
    for run in runs:
        output.table(("what", "value"), _about(run))
        print_tables(output, [run])


def _about(run: Run) -> Iterator[tuple[str, str]]:
    from hubtools.evaluation.captions import engine_words
    from hubtools.evaluation.protocol import flat

    yield "checkpoint", run.member
    yield "weights", run.weights or "not known: a server cannot prove them"
    yield "suite", f"{run.suite} {run.suite_identity.get('version', '')}".strip()
    yield "status", run.status
    yield "date", run.date
    yield "answers", f"{run.n} scored, {run.failures} failed, {run.cut_off} cut off"
    if run.failure_kinds:
        yield "failures", ", ".join(f"{n} {kind}" for kind, n in run.failure_kinds.items())
    if run.tiers:
        yield "rungs", ", ".join(f"{rung}: {n}" for rung, n in run.tiers.items())
    if run.missing:
        yield "not told", ", ".join(run.missing)
    yield "engine", engine_words([run])
    yield "protocol", run.protocol_id
    for field, value in flat(run.protocol).items():
        yield f"  {field}", str(value)
    yield "record", str(run.path)


@click.command("samples", short_help="Show single answers of a run.")
@click.argument("path", metavar="RUN", type=_RUN)
@click.option("--wrong", is_flag=True, help="Those with less than the full score.")
@click.option("--failed", is_flag=True, help="Those without an answer.")
@click.option("--item", "items", multiple=True, help="Of this question. Repeatable.")
@click.option("--category", default="", help="Of this category.")
@click.option("--metric", default="", help="Which score to look at  [default: the first]")
@click.option(
    "-n", "--number", type=click.IntRange(1), default=20, show_default=True, help="At most so many."
)
@with_output
def samples(
    output: Output,
    path: Path,
    wrong: bool,
    failed: bool,
    items: tuple[str, ...],
    category: str,
    metric: str,
    number: int,
) -> None:
    """Show single answers of a run: what was asked, written, extracted and accepted."""
    (run,) = _one(path)
    if not run.grids:
        raise click.UsageError(f"The run is only {run.status}: it has figures, and no answers.")
    metric = metric or next(iter(run.grids))
    if metric not in run.grids:
        known = ", ".join(run.grids)
        raise click.UsageError(f"The run has no metric {metric!r}; it has: {known}.")
    if category and category not in run.categories:
        known = ", ".join(map(repr, run.categories))
        raise click.UsageError(f"The run has no category {category!r}; it has: {known}.")
    if unknown := set(items).difference(run.grids[metric].items):
        raise click.UsageError(f"The run has no question {', '.join(sorted(unknown))}.")
    chosen = [
        sample
        for sample in run.iter_samples()
        if (not items or sample["item"] in items)
        and (not category or sample["category"] == category)
        and (not failed or sample["failure"])
        and (not wrong or (sample["scores"] is not None and sample["scores"][metric] < 1))
    ]
    shown = chosen[:number]
    output.result(
        "hubtools.evaluate-samples/1",
        {"run": str(run.path), "metric": metric, "matching": len(chosen), "samples": shown},
    )
    columns = ("item", "trial", metric, "extracted", "accepted", "written", "asked")
    if items:
        for sample in shown:
            output.table(("what", "value"), zip(columns, _sample(sample, metric), strict=True))
    else:
        rows = [_sample(sample, metric) for sample in shown]
        output.table(columns, [(*row[:5], *map(_excerpt, row[5:])) for row in rows])
    if output.quiet:
        for sample in shown:
            output.line(sample["item"])
    output.note(f"{len(shown)} of {len(chosen)} answers that match, of {run.samples}")
    if shown and not items:
        output.note(f"  an answer in full: --item {shown[0]['item']}")


def _sample(sample: dict[str, Any], metric: str) -> tuple[str, ...]:
    scores, extracted = sample["scores"], sample.get("extracted")
    asked = [turn["content"] for turn in sample["messages"] if turn["role"] == "user"]
    return (
        sample["item"],
        str(sample["trial"]),
        "failed" if scores is None else f"{scores[metric]:.2f}",
        "—" if not extracted or extracted[metric] is None else extracted[metric],
        " / ".join(sample["answers"]),
        " ".join((sample["output"] or sample["failure"] or "").split()),
        " ".join("".join(asked[-1:]).split()),
    )


def _excerpt(text: str) -> str:
    """Begin and end: a question often stands at the end of what was asked."""
    half = _EXCERPT // 2
    return text if len(text) <= _EXCERPT else f"{text[:half]}…{text[-half + 1 :]}"


@click.command("table", short_help="Put runs into tables, one protocol a table.")
@click.argument("paths", nargs=-1, metavar="[RUN]...", type=_RUN)
@click.option("--baseline", default="", help="Row to compare with  [default: base, else the first]")
@click.option("--best", is_flag=True, help="Mark the best, and say what its lead is worth.")
@click.option("--markdown", is_flag=True, help="Write the tables as Markdown.")
@with_output
def table(
    output: Output, paths: tuple[Path, ...], baseline: str, best: bool, markdown: bool
) -> None:
    """Put runs into tables, one protocol a table; without RUN those under evaluations/."""
    from hubtools.evaluation.tables import metric_tables

    runs = runs_at(paths or (Path("evaluations"),), output.note)
    if baseline and baseline not in (members := dict.fromkeys(run.member for run in runs)):
        raise click.UsageError(f"No row is called {baseline!r}; there are: {', '.join(members)}.")
    made = metric_tables(runs, baseline=baseline, best=best)
    output.result("hubtools.evaluate-table/1", {"tables": [entry.to_json() for entry in made]})
    if markdown:
        for entry in made:
            output.line(f"### {entry.title}\n\n{entry.markdown()}")
    else:
        print_tables(output, runs, baseline=baseline, best=best)


@click.command("compare", short_help="Say whether two runs may be compared, and what comes of it.")
@click.argument("a", type=_RUN)
@click.argument("b", type=_RUN)
@with_output
def compare(output: Output, a: Path, b: Path) -> None:
    """Say whether the figures of runs A and B may be compared, why, and what comes of it.

    The exit code is 3 where they may not.
    """
    from hubtools.evaluation.compare import explain

    (first,), (second,) = _one(a), _one(b)
    found = explain(first, second)
    output.result("hubtools.evaluate-compare/1", found.to_json())
    for line in found.lines():
        output.line(line)
    if not found.comparable:
        click.get_current_context().exit(int(ExitCode.CHECK))


def _one(path: Path) -> list[Run]:
    runs = runs_at((path,))
    if len(runs) > 1:
        names = ", ".join(str(run.path.parent) for run in runs[:5])
        raise click.UsageError(f"{path} holds {len(runs)} runs; name one of them: {names}")
    return runs
