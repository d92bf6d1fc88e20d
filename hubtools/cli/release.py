"""`hubtools release`: from what lies on disk to the Hub, each repo in one commit."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from hubtools.cli import complete
from hubtools.cli.hubs import opened
from hubtools.cli.options import hub_option, with_output, yes_option
from hubtools.cli.output import Output
from hubtools.errors import RemoteMovedError, UsageError
from hubtools.settings import LOCAL

if TYPE_CHECKING:
    from hubtools.family.manifest import Family, Member
    from hubtools.release.plan import Plan


@click.command("release", short_help="Check, merge, evaluate, render and push a family.")
@click.argument("targets", nargs=-1, shell_complete=complete.targets)
@click.option("--family", type=click.Path(path_type=Path), help="Folder that holds family.toml.")
@click.option("--from", "source", type=click.Path(path_type=Path), help="Release this run as is.")
@click.option("--base", default="", help="With --from: owner/name@REVISION of the base.")
@click.option("--base-path", type=click.Path(path_type=Path), help="With --from: its local copy.")
@click.option("--kind", type=click.Choice(["full", "adapter", "merged"]), help="With --from.")
@click.option("--license", default="", help="With --from: licence id of the release.")
@click.option("--suite", "suites", multiple=True, help="With --from: evaluation suite to run.")
@click.option("--private", is_flag=True, help="With --from: keep the repo private.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="With --from: of merged weights, or of a trainer's shards.",
)
@click.option(
    "--lora-alpha",
    type=click.FloatRange(min=0, min_open=True),
    help="With --from: of a sharded LoRA run without it.",
)
@click.option("--with-sisters", is_flag=True, help="Take along published sisters.")
@click.option(
    "--weights",
    type=click.Choice(["keep", "delete"]),
    help="Made weights once they are published (manifest: [release] weights).",
)
@click.option("--dry-run", is_flag=True, help="All local stages, no push.")
@click.option("--apply", type=click.Path(path_type=Path), help="Only if this saved plan holds.")
@yes_option
@hub_option
@with_output
def command(
    output: Output,
    targets: tuple[str, ...],
    family: Path | None,
    with_sisters: bool,
    weights: Literal["keep", "delete"] | None,
    dry_run: bool,
    apply: Path | None,
    yes: bool,
    hub: str | None,
    **inferred: Any,
) -> None:
    """Check, merge, evaluate, render and push a family.

    TARGETS are a family folder, member ids (r2e/s50) or repo ids; none means every member. Without
    a manifest: `hubtools release owner/name --from DIR`. Run the same command again after any
    interruption: done work is remembered.
    """
    from hubtools.cli.planview import print_plan
    from hubtools.release.locate import locate
    from hubtools.release.refuse import refuse
    from hubtools.release.run import read_remotes, run_release

    if inferred["source"] is not None:
        found, members = _from_directory(output, targets, **inferred)
    elif stray := [name for name, value in inferred.items() if value]:
        raise UsageError(
            "HT009",
            f"--{stray[0].rstrip('s').replace('_', '-')} goes with --from; a family says it in its"
            " manifest",
            next="set it in family.toml (docs/manifest.md), or release a directory with --from",
        )
    else:
        planned = _saved(apply)
        if planned and not targets and family is None:
            family = Path(planned.get("root", "."))
        found, members = locate(targets, family, Path.cwd())
        if planned:
            members = tuple(found.member(name) for name in planned["targets"])
    with opened(output, found, members, hub) as release:
        release.weights = weights or release.weights
        if with_sisters:
            read_remotes(release)
            there = [m for m in found.members if release.remotes[m.repo].exists]
            release.targets = tuple(m for m in found.members if m in (*members, *there))

        def first(plan: Plan) -> None:
            if not (yes or dry_run or sys.stdin.isatty()):  # now rather than after hours of work
                print_plan(output, plan, story=True)
                refuse(plan.findings)
                output.confirm("Push to the Hub?", yes=False)

        def show(plan: Plan) -> None:
            _still_holds(apply, plan)
            print_plan(output, plan, story=True)

        def confirm(plan: Plan) -> None:
            output.confirm(_question(plan), yes)

        result = run_release(release, confirm=confirm, show=show, first=first, dry_run=dry_run)
    report(output, result)


def report(output: Output, result: dict[str, Any]) -> None:
    """How a release ended: the receipt on stdout, a sentence on stderr."""
    output.result("hubtools.release/1", result)
    pushed = [entry for entry in result["members"].values() if entry["pushed"]]
    if result["dry_run"]:
        output.note("✓ dry run: every local stage is done, nothing was pushed")
    elif not pushed:
        output.note("✓ nothing left to do: every repo is as planned")
    for entry in result["members"].values():
        shown = (
            entry["repo"]
            if output.quiet or result["hub"] == LOCAL
            else f"{result['hub']}/{entry['repo']}"
        )
        output.line(shown)


def _from_directory(
    output: Output,
    targets: tuple[str, ...],
    *,
    source: Path,
    private: bool,
    kind: str | None,
    dtype: str | None,
    **known: Any,
) -> tuple[Family, tuple[Member, ...]]:
    from hubtools.family.manifest import read_family
    from hubtools.release.infer import infer_manifest, keep_manifest

    if len(targets) != 1:
        raise UsageError(
            "HT009",
            "--from releases one checkpoint: name its repo",
            next=f"hubtools release owner/name --from {source}",
        )
    inferred = infer_manifest(
        targets[0],
        source,
        kind=kind or "",
        dtype=dtype or "",
        visibility="private" if private else "public",
        **known,
    )
    for origin in inferred.origins:
        output.note(f"inferred {origin}")
    file = keep_manifest(inferred, targets[0], source)
    output.note(f"manifest kept as {file}")
    family = read_family(file)
    return family, family.members


def _saved(apply: Path | None) -> Mapping[str, Any]:
    from hubtools.release.plan import is_saved_plan

    if apply is None:
        return {}
    try:
        data = json.loads(apply.read_bytes())
        if is_saved_plan(data):
            return data
    except (OSError, ValueError, RecursionError):
        data = None
    raise UsageError(
        "HT504", "not a saved plan", where=str(apply), next="hubtools plan --plan-out FILE"
    )


def _still_holds(apply: Path | None, plan: Plan) -> None:
    from hubtools.release.plan import differences

    if apply is None:
        return
    found = differences(_saved(apply), plan)
    if found:
        raise RemoteMovedError(
            "HT503",
            "what was planned no longer holds",
            where=str(apply),
            detail=[*found[:10], "Nothing was changed."],
            next="hubtools plan --plan-out FILE, look at it, then release --apply it",
        )


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def _question(plan: Plan) -> str:
    from hubtools.sizes import size_words

    create = sum(change.action == "create" for change in plan.repos)
    commits = sum(change.action in ("create", "update") for change in plan.repos)
    size = sum(change.send for change in plan.repos)
    return (
        f"Push to {plan.hub}? {_count(create, 'repo')} to create, {_count(commits, 'commit')},"
        f" {size_words(size)} to send"
    )
