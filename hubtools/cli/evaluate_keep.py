"""`hubtools evaluate rescore | import | pin`: runs made of what is there, and what data count."""

from __future__ import annotations

import re
from pathlib import Path

import click

from hubtools.cli.evaluateview import print_tables, runs_json
from hubtools.cli.options import with_output
from hubtools.cli.output import Output

_FILE = click.Path(exists=True, path_type=Path)


@click.command("rescore", short_help="Score kept answers anew, without the model.")
@click.argument("path", metavar="RUN", type=_FILE)
@click.option("--suite", help="Path of a suite with other metrics  [default: the run's own]")
@with_output
def rescore(output: Output, path: Path, suite: str | None) -> None:
    """Score a run's kept answers anew: a new run beside it, under its own protocol."""
    from hubtools.evaluation.bridge import rescore as score_again

    folder = path if path.is_dir() else path.parent
    before = set(folder.parent.glob("*/run.json"))
    with output.progress() as progress:
        record = score_again(path, suite=suite, progress=progress)
    made = Path(record["path"])
    _kept(output, made, "hubtools.evaluate-rescore/1", new=made not in before)


def _member(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    from eval_harness.suite_values import label

    try:
        return label(name, "NAME")
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command("import", short_help="Take in results that another harness wrote.")
@click.argument("path", metavar="PATH", type=_FILE)
@click.option(
    "--member",
    required=True,
    metavar="NAME",
    callback=_member,
    help="Checkpoint that was measured.",
)
@click.option(
    "--weights",
    default="",
    metavar="SHA256",
    callback=lambda ctx, param, value: _digest(value),
    help="Its weights digest, if known.",
)
@click.option("--kind", default=None, help="Format  [default: told by the content]")
@click.option("--step", type=int, metavar="N", help="Which validation of a training run.")
@click.option("--seed", type=int, default=0, help="Of the run, to tell repeats apart.")
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="OUT",
    help="Directory of runs  [default: evaluations/NAME]",
)
@with_output
def import_(
    output: Output,
    path: Path,
    member: str,
    weights: str,
    kind: str | None,
    step: int | None,
    seed: int,
    out: Path | None,
) -> None:
    """Take in results that another harness wrote: lm-eval, τ²-bench, inspect, verl, EEE.

    Their figures are marked as external, and what they do not tell is named.
    """
    from hubtools.evaluation.importing.found import slug
    from hubtools.evaluation.importing.importing import import_run

    folder = out or Path("evaluations") / slug(member.replace("/", "--"))
    record = import_run(
        path, kind=kind, member=member, weights=weights, out=folder, step=step, seed=seed
    )
    _kept(output, Path(record["path"]), "hubtools.evaluate-import/1")


@click.command("pin", short_help="Say which digests a suite's questions have.")
@click.argument("suite")
@click.option("--revision", default="", help="Of the dataset  [default: the suite's own]")
@with_output
def pin(output: Output, suite: str, revision: str) -> None:
    """Fetch a suite's questions and keep their digests as the right ones, from now on."""
    from eval_harness.errors import HarnessError
    from eval_harness.pins import pin as keep
    from eval_harness.suite import suite_file
    from hubtools.evaluation.failures import bridged

    try:
        told = keep(suite_file(suite), revision)
    except HarnessError as error:
        raise bridged(error) from error
    output.result("hubtools.evaluate-pin/1", {"suite": suite, **told})
    rows = [(name, str(kept["n"]), kept["sha256"]) for name, kept in told["pins"].items()]
    output.table(("category", "n", "sha256"), rows)
    output.note(f"✓ {len(rows)} files of {told['repo']}@{told['revision'][:12]} pinned")


def _digest(value: str) -> str:
    if value and not re.fullmatch("[0-9a-f]{64}", value):
        raise click.BadParameter("a weights digest is 64 hex digits, in lower case")
    return value


def _kept(output: Output, path: Path, schema: str, *, new: bool = True) -> None:
    from hubtools.evaluation.records import read_run

    run = read_run(path)
    output.result(schema, runs_json([run])[0] | {"schema": schema})
    print_tables(output, [run])
    if output.quiet:
        output.line(str(path))
    output.note(f"✓ kept in {path.parent}" if new else f"✓ unchanged: {path.parent} has it already")
