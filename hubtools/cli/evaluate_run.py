"""`hubtools evaluate run`: cells from options, an executor that computes them, the figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubtools.cli.evaluate_options import CHECKPOINT, run_options
from hubtools.cli.evaluate_targets import targets_of
from hubtools.cli.evaluateview import print_tables, runs_json
from hubtools.cli.options import with_output
from hubtools.cli.output import Output

if TYPE_CHECKING:
    from hubtools.evaluation.executors.job import Job
    from hubtools.evaluation.spec import Cell, Engine, SuiteOptions, Target

SCHEMA = "hubtools.evaluate/2"


@click.command(
    "run",
    short_help="Evaluate checkpoints; the default.",
    help="""Evaluate checkpoints on suites and keep every answer.

    MODEL is a checkpoint directory; several are evaluated in turn. Runs are kept in OUT/SUITE/1,
    2, …; a finished run of the same weights under the same protocol and seed is shown again instead
    of being repeated, and one that was interrupted is gone on with.
    """,
)
@click.argument("models", nargs=-1, metavar="[MODEL]...", type=CHECKPOINT)
@run_options
@with_output
def run(
    output: Output,
    models: tuple[Path, ...],
    adapters: tuple[Path, ...],
    suites: tuple[str, ...],
    seeds: tuple[int, ...],
    out: Path | None,
    dry_run: bool,
    again: bool,
    retry_failed: bool,
    **how: Any,
) -> None:
    """Parse, call, print."""
    from hubtools.evaluation.bridge import find_run, planned_protocol
    from hubtools.evaluation.executors.job import jobs_of
    from hubtools.evaluation.spec import Cell, Target

    engine = _engine(models, adapters, how)
    options = _suite_options(how)
    for suite in suites:  # before gigabytes are hashed
        planned_protocol(Cell(Target(""), suite, engine, 0, Path(), options))
    targets = targets_of(models, adapters, engine)
    if adapters:
        output.note(
            f"the base {models[0]} is not evaluated by itself: for that leave out --adapter"
        )
    cells = [
        Cell(target, suite, engine, seed, _out(out, target, len(targets)), options)
        for target in targets
        for suite in suites
        for seed in seeds
    ]
    if dry_run:
        _plan(output, cells)
        return
    jobs = jobs_of(cells, again=again, retry_failed=retry_failed)
    if how["executor"] == "slurm":
        _write_array(output, jobs, out or Path("evaluations"), how["slurm_options"])
        return
    served = () if again or retry_failed or engine.kind != "endpoint" else cells
    shown = sum(find_run(cell) is not None for cell in served)
    results = _compute(output, jobs, how)
    finish(output, results)
    if shown:
        output.note(
            f"! {shown} kept runs are shown again, the server was not asked; to ask: --again"
        )


def finish(output: Output, results: Sequence[Any]) -> None:
    """Print what was measured, then end with what failed.

    Raises:
        HubtoolsError: the only failure, or HT480 naming what remains.
    """
    from hubtools.errors import HubtoolsError
    from hubtools.evaluation.records import read_run

    failed = [result for result in results if isinstance(result, HubtoolsError)]
    records = [r for result in results if not isinstance(result, HubtoolsError) for r in result]
    runs = [read_run(Path(record["path"])) for record in records]
    if runs:
        data = {"runs": runs_json(runs), "failed": [error.to_json() for error in failed]}
        output.result(SCHEMA, data)
    print_tables(output, runs)
    for found in runs:
        if output.quiet:
            output.line(str(found.path))
        elif found.failures:
            output.note(
                f"! {found.failures} of {found.samples} questions got no answer and are not scored"
            )
        output.note(f"✓ kept in {found.path.parent}")
    warnings = {
        f"! {finding['member']}: {finding['message']}": None
        for record in records
        for finding in record.get("findings", ())
        if finding["level"] == "warning"
    }
    for warning in warnings:
        output.note(warning)
    if failed:
        raise _ended(failed, len(records))


def _ended(failed: Sequence[Any], done: int) -> Exception:
    from hubtools.errors import PartialError

    if len(failed) == 1 and not done:
        error: Exception = failed[0]
        return error
    return PartialError(
        "HT480",
        f"{len(failed)} checkpoints could not be evaluated, {done} runs are finished",
        detail=tuple(f"[{error.id}] {error.message} ({error.where})" for error in failed),
        next="mend what failed, then run the same command again: finished runs are kept",
    )


def _engine(models: tuple[Path, ...], adapters: tuple[Path, ...], how: dict[str, Any]) -> Engine:
    from hubtools.evaluation.spec import Engine

    endpoint, name = how["endpoint"], how["served_name"]
    if endpoint is None and not models:
        raise click.UsageError("Name a checkpoint directory, or a server with --endpoint.")
    if endpoint is not None and (models or adapters):
        raise click.UsageError("--endpoint measures a server: name no directory beside it.")
    if (endpoint is None) == bool(name):
        raise click.UsageError("--endpoint and --model go together.")
    if adapters and len(models) > 1:
        raise click.UsageError("--adapter goes with one MODEL: the base of the adapters.")
    return Engine(
        kind="endpoint" if endpoint else how["engine"],
        dtype=how["dtype"],
        device=how["device"],
        python=how["engine_python"],
        url=endpoint or "",
        served_name=name,
        api_key_env=how["api_key_env"],
        concurrency=how["concurrency"],
        max_model_len=how["max_model_len"],
        options=how["options"],
        timeout=how["timeout"],
    )


def _suite_options(how: dict[str, Any]) -> SuiteOptions:
    from hubtools.evaluation.spec import SuiteOptions

    return SuiteOptions(**{name: how[name] for name in SuiteOptions.__dataclass_fields__})


def _out(out: Path | None, target: Target, targets: int) -> Path:
    if out is None:
        return Path("evaluations") / target.member
    return out if targets == 1 else out / target.member


def _plan(output: Output, cells: Sequence[Cell]) -> None:
    from hubtools.evaluation.bridge import find_run, planned_protocol
    from hubtools.evaluation.protocol import protocol_id

    planned: list[dict[str, Any]] = []
    for cell in cells:
        found = find_run(cell)
        planned.append(
            {
                "checkpoint": cell.target.member,
                "suite": cell.suite,
                "seed": cell.seed,
                "plan_id": protocol_id(planned_protocol(cell)),
                "run": found["path"] if found else None,
            }
        )
    output.result("hubtools.evaluate-plan/1", {"cells": planned})
    output.table(
        ("checkpoint", "suite", "seed", "protocol", "run"),
        [
            (p["checkpoint"], p["suite"], str(p["seed"]), p["plan_id"][:12], p["run"] or "to do")
            for p in planned
        ],
    )
    output.note(f"dry run: {sum(p['run'] is None for p in planned)} of {len(planned)} runs to do")


def _write_array(
    output: Output, jobs: Sequence[Job], folder: Path, options: tuple[str, ...]
) -> None:
    from hubtools.evaluation.executors.slurm import write_array

    script = write_array(jobs, folder / "slurm", options)
    output.result("hubtools.evaluate-array/1", {"script": str(script), "jobs": len(jobs)})
    output.line(str(script))
    output.note(f"✓ {len(jobs)} jobs written; next: sbatch {script}")


def _compute(output: Output, jobs: Sequence[Job], how: dict[str, Any]) -> Sequence[Any]:
    with output.progress() as progress:
        if how["executor"] == "ray":
            from hubtools.evaluation.executors.ray import run_on_ray

            return run_on_ray(
                jobs,
                log=jobs[0].cells[0].out / "log",
                address=how["ray_address"],
                gpus=how["gpus"],
                progress=progress,
            )
        from hubtools.evaluation.executors.local import run_here

        return run_here(jobs, progress=progress)


@click.command("cell", short_help="Compute one job file, as executors do.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@with_output
def cell(output: Output, file: Path) -> None:
    """Compute one job file, as executors do: what is finished stays, the rest is done."""
    from hubtools.evaluation.executors.job import read_job
    from hubtools.evaluation.executors.local import run_here

    job = read_job(file)
    with output.progress() as progress:
        results = run_here([job], progress=progress)
    finish(output, results)
