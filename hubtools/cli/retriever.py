"""`hubtools retriever`: passages for agents that search, behind Search-R1's `/retrieve`."""

from __future__ import annotations

from pathlib import Path

import click

from hubtools.cli.options import with_output
from hubtools.cli.output import Output


@click.group("retriever", short_help="Build and serve a corpus for agents that search.")
def command() -> None:
    """Build and serve a corpus for agents that search."""


@command.command("build")
@click.argument("corpus", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="INDEX",
    help="Folder of the index, which must not exist yet.",
)
@with_output
def build(output: Output, corpus: Path, out: Path) -> None:
    r"""Build a BM25 index over CORPUS, a JSONL file of id and contents.

    The contents of a passage are its title in double quotes, a line break, and its text. The corpus
    must stay where it is: passages are read from it.
    """
    from eval_harness.errors import HarnessError
    from eval_harness.retrievers.building import build_index
    from hubtools.evaluation.failures import bridged
    from hubtools.files import disk_error

    with output.progress() as progress:
        try:
            about = build_index(
                corpus,
                out,
                told=lambda done: progress(f"index {corpus.name}", done, None, "passages"),
            )
        except HarnessError as error:
            raise bridged(error) from error
        except OSError as error:
            raise disk_error(error, out, kept="Nothing was kept.") from error
    del about["schema"]  # that of the index
    output.result("hubtools.retriever-build/1", {"index": str(out), **about})
    output.line(str(out))
    output.note(f"✓ {about['passages']} passages; next: hubtools retriever serve {out}")


@command.command("serve")
@click.argument("index", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="TCP port on 127.0.0.1; 0 takes a free one.",
)
@with_output
def serve(output: Output, index: Path, port: int) -> None:
    """Answer POST /retrieve from INDEX on 127.0.0.1 until Ctrl-C."""
    from threading import Event

    from eval_harness.errors import HarnessError
    from eval_harness.retrievers.bm25 import Index
    from eval_harness.retrievers.server import serving
    from hubtools.errors import EnvironmentFailure
    from hubtools.evaluation.failures import bridged

    try:
        opened = Index(index)
    except HarnessError as error:
        raise bridged(error) from error
    try:
        with serving(opened, port) as server:
            about = {name: opened.about[name] for name in ("passages", "corpus_sha256")}
            output.result("hubtools.retriever-serve/1", {"url": server.url, **about})
            output.line(server.url)
            output.note(f"✓ {about['passages']} passages; Ctrl-C ends it")
            Event().wait()
    except KeyboardInterrupt:
        output.note("✓ stopped")
    except OSError as error:
        raise EnvironmentFailure(
            "HT482",
            f"port {port} cannot be listened on: {error.strerror}",
            next="choose another one with --port",
        ) from error
