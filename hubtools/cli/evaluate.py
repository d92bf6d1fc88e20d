"""`hubtools evaluate`: run a suite on a checkpoint, print the figures with what they are worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hubtools.cli.options import with_output
from hubtools.cli.output import Output

SCHEMA = "hubtools.evaluate/1"


@click.command(
    "evaluate",
    short_help="Run an evaluation suite and keep every answer.",
    help="""Run an evaluation suite and keep every answer.

    MODEL is a checkpoint directory. Runs are kept in OUT/SUITE/1, 2, …; a finished run of the same
    weights under the same protocol and seed is shown again instead of being repeated.
    """,
)
@click.argument(
    "model", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option("--suite", default="short_qa", show_default=True, help="Suite name, or its path.")
@click.option(
    "--adapter",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="PEFT adapter to apply on MODEL.",
)
@click.option("--endpoint", metavar="URL", help="Ask an OpenAI-compatible server, up to /v1.")
@click.option("--model", "served_name", metavar="NAME", default="", help="Model name there.")
@click.option(
    "--api-key-env",
    metavar="VARIABLE",
    default="OPENAI_API_KEY",
    show_default=True,
    help="Environment variable with the server's key.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Seed for sampling.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    default="float32",
    show_default=True,
    help="How an in-process model computes.",
)
@click.option("--device", default="cpu", show_default=True, help="Where, for example cuda:0.")
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="OUT",
    help="Directory of runs  [default: evaluations/NAME]",
)
@click.option("--again", is_flag=True, help="Add a run although a finished one is there.")
@with_output
def command(
    output: Output,
    model: Path | None,
    adapter: Path | None,
    endpoint: str | None,
    served_name: str,
    out: Path | None,
    **how: Any,
) -> None:
    """Parse, call, print."""
    from hubtools.evaluation.bridge import evaluate, model_weights
    from hubtools.evaluation.records import read_run
    from hubtools.evaluation.spec import Cell, Engine, Target
    from hubtools.evaluation.tables import metric_json, metric_tables

    _check_choice(model, adapter, endpoint, served_name)
    member = (
        served_name.strip("/").replace("/", "--")
        if model is None
        else (adapter or model).resolve().name
    )
    out = Path("evaluations") / member if out is None else out
    cell = Cell(
        Target(member, "" if model is None else model_weights(model, adapter), model, adapter),
        how["suite"],
        Engine(
            kind="transformers" if endpoint is None else "endpoint",
            dtype=how["dtype"],
            device=how["device"],
            url=endpoint or "",
            served_name=served_name,
            api_key_env=how["api_key_env"],
        ),
        how["seed"],
        out,
    )
    with output.progress() as progress:
        record = evaluate(cell, log=out / "log", again=how["again"], progress=progress)
    run = read_run(Path(record["path"]))
    output.result(SCHEMA, {**record, "metrics": metric_json(run), "schema": SCHEMA})
    for table in metric_tables([run]):
        output.table(table.columns, table.rows)
    output.note(f"protocol {run.protocol_id[:12]} · {_engine(record)} · seed {run.seed}")
    if run.failures:
        output.note(f"! {run.failures} of {run.items} questions got no answer and are not scored")
    output.note(f"✓ kept in {run.path.parent}")
    if output.quiet:
        output.line(str(run.path))


def _check_choice(
    model: Path | None, adapter: Path | None, endpoint: str | None, served_name: str
) -> None:
    if endpoint is None and model is None:
        raise click.UsageError("Name a checkpoint directory, or a server with --endpoint.")
    if endpoint is not None and (model is not None or adapter is not None):
        raise click.UsageError("--endpoint measures a server: name no directory beside it.")
    if (endpoint is None) == bool(served_name):
        raise click.UsageError("--endpoint and --model go together.")


def _engine(record: dict[str, Any]) -> str:
    engine = record["engine"]
    if engine["backend"] == "openai":
        served = ", ".join(record["served"].get("model", {})) or "unnamed"
        return f"{engine['endpoint']}, asked for {engine['requested']}, served {served}"
    versions = " ".join(f"{name} {number}" for name, number in engine["versions"].items())
    return f"{versions} · {engine['dtype']} on {engine['device']}"
