"""From a suite's `[retriever]` table to a retriever.

The table holds `corpus` (a file beside the suite, searched with BM25 in this process) and its
`corpus_sha256`; a suite without a corpus of its own needs the address of a service.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval_harness.errors import HarnessError
from eval_harness.retrievers.bm25 import Embedded, cached_index, corpus_digest, identity_of
from eval_harness.retrievers.client import Client, service_identity
from eval_harness.retrievers.passages import Retriever


def retriever_identity(table: Mapping[str, Any], base: Path, url: str = "") -> dict[str, Any]:
    """What the opened retriever's identity will be, known without starting anything.

    Args:
        table: the suite's `[retriever]`.
        base: the suite's folder.
        url: of a service, which is asked at `/health`; empty: the suite's own corpus.

    Raises:
        HarnessError: `no_retriever`, `bad_corpus`, `missing_package`.
    """
    if url:
        return service_identity(url)
    _corpus(table, base)
    return identity_of(str(table["corpus_sha256"]))


def open_retriever(table: Mapping[str, Any], base: Path, url: str = "") -> Retriever:
    """The retriever; `close` it in the event loop that searched with it.

    Arguments and errors are those of `retriever_identity`. The first use of a corpus builds its
    index in the user's cache.
    """
    if url:
        return Client(url, service_identity(url))
    corpus = _corpus(table, base)
    digest = corpus_digest(corpus)
    if digest != table["corpus_sha256"]:
        raise HarnessError(
            "bad_corpus",
            f"corpus_sha256 is not that of the file, which has {digest}",
            where=str(corpus),
            next="restore the corpus, or give the suite a new version with this digest",
        )
    return Embedded(cached_index(corpus))


def _corpus(table: Mapping[str, Any], base: Path) -> Path:
    if not table.get("corpus"):
        raise HarnessError(
            "no_retriever",
            "the suite has no corpus of its own",
            where=str(base),
            next="hubtools retriever build CORPUS.jsonl --out INDEX, then"
            " hubtools retriever serve INDEX, then add --retriever-url URL",
        )
    path = base / str(table["corpus"])
    if not path.resolve().is_relative_to(base.resolve()):
        raise HarnessError(
            "bad_corpus",
            "the corpus lies outside the suite's folder",
            where=str(path),
            next="mend it",
        )
    return path
