"""`hubtools merge`: plan, merge, let the result speak."""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from hubtools.cli import mergeview
from hubtools.cli.options import with_output
from hubtools.cli.output import Output
from hubtools.cli.spoken import find_base, let_talk, out_option, require_out
from hubtools.errors import UsageError

if TYPE_CHECKING:
    from hubtools.checkpoint.adapter import Adapter
    from hubtools.checkpoint.merging.options import MergeOptions
    from hubtools.checkpoint.merging.peft_engine import PeftPlan
    from hubtools.checkpoint.merging.plan import MergePlan

SCHEMA = "hubtools.merge/1"
Engine = Literal["stream", "peft"]


@click.command(
    "merge",
    short_help="Merge LoRA adapters into their base, bit for bit as PEFT.",
    help="""Merge LoRA adapters into their base, bit for bit as PEFT.

    ADAPTER is a directory with adapter_config.json and its weights; several are merged in turn.
    The output directory appears whole or not at all; afterwards it is loaded and lets a few words
    be heard.
    """,
)
@click.argument(
    "adapters",
    metavar="ADAPTER...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
)
@click.option(
    "--base",
    metavar="DIR|REPO@COMMIT",
    help="Model they were trained on. Default: what adapter_config.json names.",
)
@out_option
@click.option("--dry-run", is_flag=True, help="Print the plan; write nothing.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="Store every float tensor as this. Default: each as in the base.",
)
@click.option(
    "--keep-tied",
    is_flag=True,
    help="Leave input and output embedding one tensor where PEFT does: neither was trained whole.",
)
@click.option(
    "--base-is-residual",
    is_flag=True,
    help="The base is the one that PiSSA, OLoRA or the like changed, as training saved it.",
)
@click.option(
    "--engine",
    type=click.Choice(["stream", "peft"]),
    default="stream",
    show_default=True,
    help="peft: load the whole model and let PEFT merge; for adapters that are no LoRA.",
)
@click.option(
    "--check",
    type=click.Choice(["logits"]),
    help="Compare the merged model's answers with the adapter's on a few prompts.",
)
@click.option("--no-talk", is_flag=True, help="Do not load the result.")
@with_output
def command(
    output: Output,
    adapters: tuple[Path, ...],
    base: str | None,
    out: Path | None,
    dry_run: bool,
    dtype: str | None,
    keep_tied: bool,
    base_is_residual: bool,
    engine: Engine,
    check: str | None,
    no_talk: bool,
) -> None:
    """Parse, call, print."""
    from hubtools.checkpoint.adapter import open_adapter
    from hubtools.checkpoint.merging.options import MergeOptions

    require_out(out, dry_run=dry_run)
    options = MergeOptions(keep_tied, dtype, base_is_residual)
    with tempfile.TemporaryDirectory(prefix="hubtools-") as scratch:
        opened = [open_adapter(_here(path), Path(scratch)) for path in adapters]
        place = _base(output, base, opened)
        plan = _plan(opened, place, options, engine)
        planned = plan.to_json()
        mergeview.plan(output, [adapter.path for adapter in opened], place, planned)
        if dry_run or out is None:
            output.result(SCHEMA, {"plan": planned, "dry_run": True})
            output.note("Dry run: nothing was written.")
            return
        job = _Job(output, adapters, opened, place, out, options, engine)
        data = job.merge()
        data["logits"] = job.logits(Path(scratch)) if check is not None else None
        data["talk"] = None if no_talk else let_talk(output, out, job.log, "merge")
    output.result(SCHEMA, {"plan": planned, "dry_run": False, "out": str(out), **data})
    output.line(str(out))


def _here(path: Path) -> Path:
    """An adapter's directory; one that is only on the Hub has to be fetched first.

    Raises:
        UsageError: HT112 no such directory.
    """
    if path.is_dir():
        return path
    repo = re.fullmatch(r"([\w.-]+/([\w.-]+))(?:@([\w./-]+))?", str(path))
    fix = f"ls {shlex.quote(str(path.absolute().parent))}"
    if repo and not path.parent.is_dir():
        revision = f" --revision {repo[3]}" if repo[3] else ""
        fix = (
            f"hf download {repo[1]}{revision} --local-dir {repo[2]}"
            f"  # if it is on the Hub; then: hubtools merge {repo[2]} …"
        )
    raise UsageError(
        "HT112",
        "not an adapter: there is no such directory here",
        where=str(path),
        detail=("Nothing was written.",),
        next=fix,
    )


def _base(output: Output, named: str | None, adapters: list[Adapter]) -> Path:
    """The base that was named, or the one that the adapters name."""
    if named is None:
        bases = {(adapter.config.base, adapter.config.revision) for adapter in adapters}
        if len(bases) > 1 or not adapters[0].config.base:
            found = ", ".join(sorted(base for base, _ in bases if base)) or "no base"
            raise UsageError(
                "HT121",
                f"which base? the adapters name {found}",
                where=str(adapters[0].config.path),
                detail=("Nothing was written.",),
                next="add --base DIR or --base OWNER/NAME@COMMIT",
            )
        ((named, revision),) = bases
        output.note(f"The base is the one that adapter_config.json names: {named}")
    else:
        revision = ""
    return find_base(output, named, revision or None)


def _plan(
    adapters: list[Adapter], base: Path, options: MergeOptions, engine: Engine
) -> MergePlan | PeftPlan:
    from hubtools.checkpoint.merging.inputs import read_inputs

    read_inputs(adapters, base)  # a small file that cannot be carried ends a dry run as well
    if engine == "peft":
        from hubtools.checkpoint.merging.peft_engine import plan_peft

        return plan_peft(adapters, base, options)
    from hubtools.checkpoint.merging.plan import plan_merge

    return plan_merge(adapters, base, options)


class _Job:
    """What is done once the plan stands."""

    def __init__(
        self,
        output: Output,
        named: tuple[Path, ...],
        adapters: list[Adapter],
        base: Path,
        out: Path,
        options: MergeOptions,
        engine: Engine,
    ) -> None:
        self._output, self._named, self._adapters = output, named, adapters
        self._base, self._out, self._options, self._engine = base, out, options, engine
        self._narrow = True
        self.log = out.absolute().parent / f".{out.name}.merge" / "log"

    def merge(self) -> dict[str, Any]:
        """Write OUT."""
        from hubtools.checkpoint.merging.merge import merge
        from hubtools.checkpoint.workplace import Workplace

        again = Workplace(self._out, "merge").occupied  # then it is checked, or refused
        with self._output.progress() as progress:
            result = merge(
                self._named,
                self._base,
                self._out,
                options=self._options,
                engine=self._engine,
                log=self.log,
                progress=progress,
            )
        mergeview.report(self._output, result, again=again)
        self._narrow = not {"BF16", "F16"}.isdisjoint(result["report"]["dtypes"])
        return result

    def logits(self, scratch: Path) -> dict[str, Any]:
        """Compare; a difference is an error once the figures are told."""
        from hubtools.checkpoint.merging.logits import check_logits, require_equal
        from hubtools.files import write_json

        with self._output.progress() as progress:
            found = check_logits(
                self._adapters,
                self._base,
                self._out,
                scratch=scratch / "logits",
                log=self.log,
                base_is_residual=self._options.base_is_residual,
                progress=progress,
            )
        write_json(self.log.with_name("logits.json"), found)
        mergeview.logits(self._output, found)
        require_equal(found, self._out, self._options.keep_tied, self._narrow)
        return found
