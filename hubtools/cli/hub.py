"""`hubtools hub`: the embedded Hub in the foreground."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path

import click

from hubtools.cli.options import with_output
from hubtools.cli.output import Output

SCHEMA = "hubtools.hub-serve/1"
DEFAULT_PORT = 8976


@click.group("hub", short_help="Run the embedded Hub for rehearsals, CI and demos.")
def command() -> None:
    """Run the embedded Hub for rehearsals, CI and demos.

    It speaks the part of the Hub's protocol that publishing and loading need, keeps everything
    under one directory, and listens on loopback only. What is on it is not public.
    """


@command.command("serve")
@click.option(
    "--root",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".hubtools/hub"),
    show_default=True,
    help="Directory that holds its repos; made when missing.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="TCP port on 127.0.0.1; 0 takes a free one.",
)
@click.option("--no-xet", is_flag=True, help="Offer no xet storage (LFS uploads only).")
@with_output
def serve_command(output: Output, root: Path, port: int, no_xet: bool) -> None:
    """Serve repos from a directory until Ctrl-C, and say how clients reach them."""
    from hubtools.localhub.server import serve

    def ready(url: str) -> None:
        token = root.resolve() / "token"
        data = {"url": url, "root": str(root.resolve()), "token_file": str(token)}
        output.result(SCHEMA, {**data, "xet": not no_xet})
        output.line(url)
        output.note(f"Embedded Hub for rehearsal, CI and demos; loopback only, repos in {root}.")
        output.note("Point any Hugging Face client at it (a new HF_HOME keeps caches apart):")
        output.note(f"  export HF_ENDPOINT={url}")
        output.note(f'  export HF_TOKEN="$(cat {shlex.quote(str(token))})"')
        if no_xet:
            output.note("  export HF_HUB_DISABLE_XET=1")
        output.note("Ctrl-C ends it; the repos stay.")

    with suppress(KeyboardInterrupt):  # the way it is meant to end
        serve(root, port=port, xet=not no_xet, ready=ready, access_log=not output.quiet)
