"""`hubtools provenance verify`: what raw logs say about the teacher."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from hubtools.cli.options import with_output
from hubtools.cli.output import Output
from hubtools.errors import CheckError, UsageError

_COLUMNS = ("source", "claimed", "requested", "reported in raw responses", "verdict")

_WORDS = {
    "RESOLVED": "✓ resolved: the logs report this name, not a copy of the request",
    "CONSISTENT": "✓ consistent: the logs report a fixed version",
    "ECHO": "! echo: the responses repeat the request",
    "NAME-ONLY": "! name only: it does not single out weights",
    "PARTIAL": "! partial: not all responses say it",
    "UNVERIFIABLE": "! unverifiable: no response tells",
    "MIXED": "✗ mixed: more than one model answered",
    "CONTRADICTS-CLAIM": "✗ contradicts the claim",
}
"""A role's verdict in words."""

_SUSPECT = "✗ suspect: see the first note"
_DAMAGED = "! partial: some lines could not be counted"


@dataclass(frozen=True, slots=True)
class _Job:
    """What to verify, from the command line or from a manifest."""

    patterns: tuple[str, ...]
    root: Path
    claim: str
    claim_where: str
    requested: str
    self_hosted: bool
    served: Path | None
    weights: str
    aliases: Path | None


@click.group("provenance", help="Verify from raw logs which teacher answered.")
def command() -> None:
    """Group of the provenance commands."""


@command.command("verify")
@click.argument("targets", nargs=-1, metavar="[PATTERN…|FAMILY_DIR]")
@click.option("--claim", default="", metavar="NAME", help="The teacher a card would name.")
@click.option(
    "--requested", default="", metavar="NAME", help="What the script asked for, if unlogged."
)
@click.option("--self-hosted", is_flag=True, help="You ran the server: its names are your own.")
@click.option(
    "--served",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Saved /v1/models answer of that server.",
)
@click.option("--weights", default="", metavar="SHA256", help="Digest of the weights it served.")
@click.option(
    "--aliases",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Alias table to use before the bundled one.",
)
@with_output
def verify(output: Output, targets: tuple[str, ...], **options: Any) -> None:
    """Read raw API logs and say what they report, k of n per role.

    PATTERNs are files, directories or globs, in any of the formats and packings that
    docs/provenance.md lists, told by content. FAMILY_DIR holds a family.toml that says where the
    logs are; it is the current directory when nothing is given.
    Exit code 3 when several models answered, the claim is contradicted, or nothing can be read.
    """
    from hubtools.provenance.accept import require_acceptable
    from hubtools.provenance.run import verify_logs

    job = _job(targets, **options)
    with output.progress() as progress:
        verdict = verify_logs(
            job.patterns,
            job.root,
            job.claim,
            job.requested,
            "self" if job.self_hosted else "api",
            served=job.served,
            weights=job.weights,
            aliases=job.aliases,
            progress=progress,
        ).to_json()
    output.table(_COLUMNS, _rows(verdict))
    if output.quiet:
        output.line(verdict["verdict"])
    _story(output, verdict)
    error = None
    try:
        require_acceptable(verdict, job.claim_where)
    except CheckError as stop:
        if not output.json:
            raise
        error = stop
    output.result("hubtools.provenance-verify/1", {**verdict, "error": error and error.to_json()})
    if error is not None:
        click.get_current_context().exit(int(error.exit_code))


def _job(
    targets: tuple[str, ...],
    *,
    claim: str,
    requested: str,
    self_hosted: bool,
    served: Path | None,
    weights: str,
    aliases: Path | None,
) -> _Job:
    folder = Path(targets[0] if targets else ".")
    folder = folder.parent if folder.name == "family.toml" else folder
    if len(targets) <= 1 and (folder / "family.toml").is_file():
        if claim or requested or self_hosted or served or weights or aliases:
            raise UsageError(
                "HT208",
                "a family's manifest says what is claimed and where the logs are",
                where=str(folder / "family.toml"),
                next=f"hubtools provenance verify {shlex.quote(str(folder))} (or name the log "
                "files instead, with the flags)",
            )
        return _from_manifest(folder)
    if not targets:
        raise UsageError(
            "HT209",
            "no logs were named, and there is no family.toml here",
            next="hubtools provenance verify 'logs/*.jsonl' --claim NAME",
        )
    # What a person types may lead anywhere; only patterns from files are held below their folder.
    here = Path.cwd()
    patterns = tuple(str(here / target) if ".." in target else target for target in targets)
    return _Job(patterns, here, claim, "--claim", requested, self_hosted, served, weights, aliases)


def _from_manifest(folder: Path) -> _Job:
    from hubtools.family.manifest import read_family

    family = read_family(folder)
    table = family.manifest.provenance
    teacher = table.teacher
    if table.status != "logs" or teacher is None:
        raise UsageError(
            "HT207",
            f"this family has no teacher logs to verify: status is {table.status!r}",
            where=family.where("provenance", "status"),
            detail=(f"reason: {table.reason}",),
            next="hubtools provenance verify 'logs/*.jsonl' --claim NAME (with your own files), or "
            'set status = "logs" and name them in [provenance.teacher]',
        )
    return _Job(
        (teacher.logs,) if isinstance(teacher.logs, str) else teacher.logs,
        family.root,
        teacher.claim,
        family.where("provenance", "teacher", "claim"),
        teacher.requested,
        teacher.hosting == "self",
        family.resolve(teacher.served) if teacher.served else None,
        teacher.weights,
        family.resolve(table.aliases) if table.aliases else None,
    )


def _rows(verdict: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for name, role in verdict["roles"].items():
        n = role["n"]
        reported = [f"{model} {k:,}/{n:,}" for model, k in role["reported"].items()]
        yield (
            name,
            verdict["claim"] or "—",
            ", ".join(role["requested"]) or "—",
            ", ".join(reported) or f"— 0/{n:,}",
            _word(role, verdict),
        )


def _word(role: Mapping[str, Any], verdict: Mapping[str, Any]) -> str:
    """A role's verdict; no tick where the logs as a whole do not earn it."""
    word = _WORDS[role["verdict"]]
    if not word.startswith("✓"):
        return word
    if verdict["suspicions"]:
        return _SUSPECT
    return _DAMAGED if verdict["bad_total"] else word


def _story(output: Output, verdict: Mapping[str, Any]) -> None:
    from hubtools.provenance.explain import GRADES

    for note in verdict["notes"]:
        output.note(f"note  {note}")
    files, start, end = verdict["files"], verdict["created"]["from"], verdict["created"]["to"]
    when = f", responses dated {start}" if start else ""
    when += f" to {end}" if start != end else ""
    counted = f"{len(files):,} file{'' if len(files) == 1 else 's'}"
    lines = sum(file["lines"] for file in files)
    output.note(
        f"verdict {verdict['verdict']}, evidence grade {verdict['grade']} "
        f"({GRADES[verdict['grade']]}): "
        f"{counted}, {lines:,} lines{when}"
    )
