"""`hubtools ingest`: a trainer's step directory in, an ordinary checkpoint out."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from hubtools.cli.options import with_output
from hubtools.cli.output import Output
from hubtools.cli.spoken import find_base, let_talk, out_option, require_out, tell_digests
from hubtools.errors import HubtoolsError
from hubtools.sizes import size_words

SCHEMA = "hubtools.ingest/1"


@click.command(
    "ingest",
    short_help="Turn a trainer's shards into an ordinary checkpoint.",
    help="""Turn a trainer's shards into an ordinary checkpoint.

    RUN is a step directory: verl's global_step_N (FSDP1, FSDP2, HSDP rank files), a
    torch.distributed or accelerate checkpoint with .metadata, safetensors or a single pickle; or a
    run that holds one such step. Names and shapes are checked against the model before a byte is
    written, and OUT appears whole or not at all. Nothing in a pickle is run. Of a LoRA run the
    adapter comes out.
    """,
)
@click.argument("run", type=click.Path(path_type=Path))
@out_option
@click.option(
    "--base",
    metavar="DIR|REPO@COMMIT",
    help="Model it was trained from: for a config, tokenizer or licence that the run lacks.",
)
@click.option(
    "--dtype",
    type=click.Choice(["bfloat16", "float16", "float32", "float64"]),
    help="Write weights in this dtype; needed when the config declares another one than was saved.",
)
@click.option(
    "--lora-alpha", type=float, metavar="ALPHA", help="Of a LoRA run that did not save it (verl)."
)
@click.option("--dry-run", is_flag=True, help="Check everything and say what would be written.")
@click.option("--no-talk", is_flag=True, help="Do not load the result.")
@with_output
def command(
    output: Output,
    run: Path,
    out: Path | None,
    base: str | None,
    dtype: str | None,
    lora_alpha: float | None,
    dry_run: bool,
    no_talk: bool,
) -> None:
    """Parse, call, print."""
    require_out(out, dry_run=dry_run)
    found = None if base is None else find_base(output, base)
    options = {"base": found, "dtype": dtype, "lora_alpha": lora_alpha}
    try:
        _run(output, run, None if dry_run else out, options, no_talk)
    except HubtoolsError as error:
        end = f" -o {shlex.quote(str(out))}" if out is not None else " --dry-run"
        end = (f" --base {shlex.quote(base)}" if base else "") + end
        error.next = error.next.replace(" -o OUT", end)
        error.detail = tuple(text.replace(" -o OUT", end) for text in error.detail)
        raise


def _run(
    output: Output, run: Path, out: Path | None, options: dict[str, Any], no_talk: bool
) -> None:
    if out is None:
        report = _check(run, options)
        _story(output, report)
        output.result(SCHEMA, {"dry_run": True, "report": report})
        output.note("Dry run: nothing was written.")
        return
    data = _ingest(output, run, out, options, no_talk)
    output.result(SCHEMA, {"dry_run": False, "out": str(out), **data})
    output.line(str(out))


def _check(run: Path, options: dict[str, Any]) -> dict[str, Any]:
    from hubtools.checkpoint.ingesting.ingest import check_ingest
    from hubtools.children import passing_log

    with passing_log() as log:
        return check_ingest(run, **options, log=log)


def _ingest(
    output: Output, run: Path, out: Path, options: dict[str, Any], no_talk: bool
) -> dict[str, Any]:
    from hubtools.checkpoint.ingesting.ingest import ingest

    log = out.absolute().parent / f".{out.name}.ingest" / "log"
    with output.progress() as progress:
        result = ingest(run, out, **options, log=log, progress=progress)
    report = result["report"]
    _story(output, report)
    rounded = report["rounded_elements"]
    share = rounded / max(1, report["elements"])
    dtypes = "+".join(report["dtypes_out"])
    kept = f"{share:.1%} of the values were rounded to {dtypes}" if rounded else "every bit kept"
    output.note(f"✓ ingested  {kept}")
    tell_digests(output, result["weights"])
    if report["kind"] == "adapter":
        output.note("✓ adapter   merge or release it as any other adapter")
        return {**result, "talk": None}
    return {**result, "talk": None if no_talk else let_talk(output, out, log, "ingest")}


def _story(output: Output, report: dict[str, Any]) -> None:
    step = f", step {report['step']}" if report["step"] is not None else ""
    ranks = f" of {report['world_size']} ranks" if report["world_size"] > 1 else ""
    output.note(f"{report['source']}{ranks}{step}: {report['kind']}")
    output.note(
        f"  {report['tensors']} tensors, {size_words(report['bytes'])}, "
        f"{'+'.join(report['dtypes_in'])} → {'+'.join(report['dtypes_out'])}, "
        f"names and shapes checked against {report['checked_against']}"
    )
    for name in report["dropped"]:
        output.note(f"  {name} is not written: it is tied")
