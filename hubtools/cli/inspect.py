"""`hubtools inspect`: what a directory or a repo holds, and what it gives away."""

from __future__ import annotations

import re
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubtools.cli.options import hub_option, with_output
from hubtools.cli.output import Output
from hubtools.errors import CheckError, EnvironmentFailure, Finding

if TYPE_CHECKING:
    from hubtools.checkpoint.inspecting.basecheck import BaseCheck
    from hubtools.checkpoint.inspecting.describe import Description
    from hubtools.hub.ranged import RepoReader

SCHEMA = "hubtools.inspect/1"
_REPO = re.compile(r"(?:hf://)?(?:models/)?([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")


@click.command(
    "inspect",
    short_help="Say what a directory or repo holds, and what it gives away.",
    help="""Say what a directory or repo holds, and what it gives away.

    The argument is a directory, a safetensors or GGUF file, or a repo: owner/name,
    owner/name@revision, hf://owner/name. Headers and small text files are read, of a repo by
    ranges; no weights are loaded or downloaded, and no code or pickle is run. Exit code 3 means
    that a file is damaged or missing, or that the directory is not the --base it was held against.
    """,
)
@click.argument("target", metavar="PATH|REPO[@REVISION]")
@click.option(
    "--base", metavar="REPO[@REVISION]", help="Hold the directory against this model on the Hub."
)
@hub_option
@with_output
def command(output: Output, target: str, base: str | None, hub: str | None) -> None:
    """Parse, call, print."""
    path = Path(target).expanduser()
    if path.exists() or target.startswith((".", "/", "~")):
        _directory(output, target, base, hub)
    elif base is not None:
        raise click.UsageError("--base is for a directory: a repo is what it is.")
    else:
        if not target.startswith("hf://"):
            output.note(f"· {target} is no path here: looking for such a repo")
        try:
            _repo(output, target, hub)
        except EnvironmentFailure as error:
            if error.id in ("HT307", "HT308") and not target.startswith("hf://"):
                error.detail = (f"Nor is there a directory or file {target} here.", *error.detail)
            raise


def _directory(output: Output, target: str, base: str | None, hub: str | None) -> None:
    from hubtools.checkpoint.inspecting.look import look
    from hubtools.provenance.secrets import scan_text

    path = Path(target).expanduser()
    description = look(path, scan=scan_text)
    if base is not None and (not path.is_dir() or description.adapter is not None):
        raise click.UsageError("--base is for the directory of a whole model.")
    check = _held_against(output, path, base, hub) if base is not None else None
    _answer(output, target, description, check, None)


def _repo(output: Output, target: str, hub: str | None) -> None:
    from hubtools.checkpoint.inspecting.look import look
    from hubtools.checkpoint.inspecting.mirror import mirror
    from hubtools.provenance.secrets import scan_text

    with ExitStack() as stack:
        reader = _opened(output, hub, target, stack)
        place = f"{reader.repo}@{reader.commit}"
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hubtools-")))
        sizes = {name: file.size for name, file in reader.files.items()}
        progress = stack.enter_context(output.progress())

        def read(name: str, begin: int, end: int) -> bytes:
            data = reader.read(name, begin, end)
            progress(f"headers of {reader.repo}", reader.received, None, "bytes")
            return data

        holes = mirror(sizes, read, folder)
        description = look(folder, scan=scan_text, public=True, holes=holes)
    findings = tuple(_renamed(finding, str(folder), place) for finding in description.findings)
    _answer(output, place, replace(description, findings=findings), None, reader)


def _renamed(finding: Finding, folder: str, place: str) -> Finding:
    """The same finding about the repo, not about the directory that stood for it."""
    message, where, fix = (
        text.replace(folder, place) for text in (finding.message, finding.where, finding.next)
    )
    return replace(finding, message=message, where=where, next=fix)


def _held_against(output: Output, path: Path, base: str, hub: str | None) -> BaseCheck:
    from hubtools.checkpoint.inspecting.basecheck import check_base, unchecked

    with ExitStack() as stack:
        try:
            reader = _opened(output, hub, base, stack)
        except EnvironmentFailure as error:
            if error.id == "HT308":
                raise
            return unchecked(base, f"{error.message} [{error.id}]")
        with output.progress() as progress:
            return check_base(path, reader.repo, reader.commit, reader.files, progress=progress)


def _opened(output: Output, hub: str | None, name: str, stack: ExitStack) -> RepoReader:
    from hubtools.cli.hubs import session_of
    from hubtools.hub.ranged import open_repo
    from hubtools.settings import LOCAL, resolve

    match = _REPO.fullmatch(name)
    if match is None:
        raise click.BadParameter(f"{name!r} is neither a path here nor owner/name[@revision].")
    state = Path(".hubtools").absolute()
    if resolve({"hub": hub}).hub == LOCAL and not (state / "hub").is_dir():
        raise click.UsageError("no embedded Hub keeps its repos here, in .hubtools/hub.")
    session, _ = session_of(output, hub, state, stack)
    return open_repo(session, match[1], match[2])


def _answer(
    output: Output,
    place: str,
    description: Description,
    check: BaseCheck | None,
    reader: RepoReader | None,
) -> None:
    from hubtools.cli.inspectview import print_description

    print_description(output, place, description, check, reader)
    remote = reader and {
        "repo": reader.repo,
        "commit": reader.commit,
        "reads": reader.requests,
        "bytes_read": reader.received,
    }
    data = {"place": place, **description.to_json(), "remote": remote}
    output.result(SCHEMA, {**data, "base_check": check and check.to_json()})
    if output.quiet:
        output.line(description.kind)
    _fail_if(place, description, check)


def _fail_if(place: str, description: Description, check: BaseCheck | None) -> None:
    """End with exit code 3 after the answer.

    Raises:
        CheckError: the first damage; HT101 when there is no checkpoint; HT181 when the directory is
            not that base.
    """
    errors = [finding for finding in description.findings if finding.level == "error"]
    if errors:
        first = errors[0]
        raise CheckError(
            first.id,
            first.message,
            where=first.where,
            detail=[f"{finding.message} ({finding.where})" for finding in errors[1:]],
            next=first.next,
        )
    if description.kind == "unknown":
        raise CheckError(
            "HT101",
            "there is no checkpoint here",
            where=place,
            detail=(
                "Looked for config.json with weights, adapter_config.json, GGUF and the shards of"
                " a trainer, here and in the folders below.",
            ),
            next=f"hubtools inspect {place} --json  # what is there; then name another place",
        )
    if check is not None and check.verdict in ("differs", "weights equal"):
        raise CheckError(
            "HT181",
            f"this directory is not {check.repo}@{check.commit[:7]}"
            + ("; its weights are" if check.verdict == "weights equal" else ""),
            where=str(description.path),
            detail=[f"{name}: {how}" for name, how in check.differing.items()],
            next=f"hf download {check.repo} --revision {check.commit}",
        )
