"""`hubtools merge`: plan, merge, let the result speak."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubtools.cli.options import with_output
from hubtools.cli.output import Output
from hubtools.errors import CheckError

if TYPE_CHECKING:
    from hubtools.checkpoint.merging.plan import MergePlan

SCHEMA = "hubtools.merge/1"


@click.command(
    "merge",
    short_help="Merge a LoRA adapter into its base, bit for bit as PEFT.",
    help="""Merge a LoRA adapter into its base, bit for bit as PEFT.

    ADAPTER is a directory with adapter_config.json and adapter_model.safetensors. The output
    directory appears whole or not at all; afterwards it is loaded and lets a few words be heard.
    """,
)
@click.argument("adapter", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--base", required=True, metavar="DIR|REPO@COMMIT", help="Model it was trained on.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), metavar="OUT", help="New directory to write."
)
@click.option("--dry-run", is_flag=True, help="Print the plan; write nothing.")
@click.option("--no-talk", is_flag=True, help="Do not load the result.")
@with_output
def command(
    output: Output, adapter: Path, base: str, out: Path | None, dry_run: bool, no_talk: bool
) -> None:
    """Parse, call, print."""
    from hubtools.checkpoint.base import resolve_base
    from hubtools.checkpoint.merging.plan import plan_merge

    if out is None and not dry_run:
        raise click.UsageError("Missing option '-o' / '--out' (or give --dry-run).")
    if not Path(base).expanduser().is_dir():
        output.note(f"Looking for the base {base} in the cache and on the Hub")
    plan = plan_merge(adapter, resolve_base(base))
    _print_plan(output, plan)
    if dry_run or out is None:
        output.result(SCHEMA, {"plan": plan.to_json(), "dry_run": True})
        output.note("Dry run: nothing was written.")
        return
    data = _merge_and_talk(output, plan, out, no_talk)
    output.result(SCHEMA, {"plan": plan.to_json(), "dry_run": False, "out": str(out), **data})
    output.line(str(out))


def _print_plan(output: Output, plan: MergePlan) -> None:
    data = plan.to_json()
    output.note(f"Merge {plan.adapter} into {plan.base}")
    output.note(
        f"  {data['changed_tensors']} of {data['tensors']} tensors change "
        f"({_size(data['changed_bytes'])} of {_size(data['bytes'])}), "
        f"rank {_list(data['ranks'])}, scaling {_list(data['scalings'])}, engine {data['engine']}"
    )


def _merge_and_talk(output: Output, plan: MergePlan, out: Path, no_talk: bool) -> dict[str, Any]:
    from hubtools.checkpoint.merging.merge import merge
    from hubtools.checkpoint.talk import talk

    log = out.absolute().parent / f".{out.name}.merge" / "log"
    with output.progress() as progress:
        result = merge(plan.adapter, plan.base, out, log=log, progress=progress)
        spoken = None if no_talk else talk(out, log=log, progress=progress)
    report = result["report"]
    moved = report["moved_elements"] / report["changed_elements"]
    output.note(f"✓ merged  {report['arithmetic']}; {moved:.1%} of the touched elements moved")
    for name, file in result["weights"].items():
        output.note(f"  sha256 {file}  {name}")
    if spoken is not None:
        output.note(f"✓ talks   {spoken['prompt']!r} → {spoken['text']!r}")
        _judge(output, spoken["findings"])
    return {**result, "talk": spoken}


def _judge(output: Output, findings: list[dict[str, str]]) -> None:
    for finding in findings:
        if finding["level"] == "error":
            raise CheckError(
                finding["id"],
                finding["message"],
                where=finding["where"],
                detail=("The merge is complete, but it should not be published like this.",),
                next=finding["next"],
            )
        output.note(f"{finding['level']}[{finding['id']}] {finding['message']}")
        output.note(f"  next: {finding['next']}")


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 10_000_000 else f"{count / 1e6:.2f} MB"


def _list(values: list[Any]) -> str:
    return ", ".join(f"{value:g}" for value in values)
