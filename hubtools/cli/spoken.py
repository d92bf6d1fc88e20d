"""What merge and ingest have alike: where they write, what they tell of base and result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from hubtools.cli.output import Output
from hubtools.errors import CheckError

out_option = click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="Directory to write, new or empty.",
)


def require_out(out: Path | None, *, dry_run: bool) -> None:
    """`-o` is needed where something is written.

    Raises:
        UsageError: it is missing.
    """
    if out is None and not dry_run:
        raise click.UsageError("Missing option '-o' / '--out' (or give --dry-run).")


def find_base(output: Output, named: str, revision: str | None = None) -> Path:
    """As `resolve_base`; a search that may take long is told first."""
    from hubtools.checkpoint.base import local_folder, resolve_base

    if local_folder(named) is None:
        output.note(f"Looking for the base {named} in the cache and on the Hub")
    return resolve_base(named, revision)


def tell_digests(output: Output, weights: Mapping[str, str]) -> None:
    """A line per weight file: name → sha256."""
    for name, digest in weights.items():
        output.note(f"  sha256 {digest}  {name}")


def let_talk(output: Output, out: Path, log: Path, made: str) -> dict[str, Any]:
    """Load the result, and tell what it said and what is wrong with it.

    Args:
        output: where it is told.
        out: the directory that was made.
        log: where the child process tells its story.
        made: what made the directory: `merge`, `ingest`.

    Returns:
        result of `talk`.

    Raises:
        CheckError: the first finding that is an error.
    """
    from hubtools.checkpoint.talk import talk

    with output.progress() as progress:
        spoken = talk(out, log=log, progress=progress)
    tell(output, spoken, made)
    return spoken


def tell(output: Output, spoken: Mapping[str, Any], made: str) -> None:
    """What the result of `talk` says; `let_talk` without the talking.

    Raises:
        CheckError: the first finding that is an error.
    """
    if spoken["tokens"] and not spoken["text"].strip():
        output.note(f"! loads   and answered {spoken['prompt']!r} with nothing to read")
    elif spoken["tokens"]:
        output.note(f"✓ talks   {spoken['prompt']!r} → {spoken['text']!r}")
    else:
        output.note(f"✓ loads   and computes, in {spoken['dtype']}; it does not generate")
    for finding in spoken["findings"]:
        if finding["level"] == "error":
            raise CheckError(
                finding["id"],
                finding["message"],
                where=finding["where"],
                detail=(f"The {made} is complete, but it should not be published like this.",),
                next=finding["next"],
            )
        output.note(f"{finding['level']}[{finding['id']}] {finding['message']}")
        output.note(f"  next: {finding['next']}")
