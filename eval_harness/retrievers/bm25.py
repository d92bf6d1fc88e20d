"""Searches a BM25 index: arrays are mapped from disk, passages are read from their corpus."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from eval_harness.errors import HarnessError
from eval_harness.places import cache_dir
from eval_harness.retrievers.building import (
    RULES,
    SCHEMA,
    SHARD,
    Told,
    bm25s_package,
    build_index,
    contents,
)
from eval_harness.retrievers.passages import Passage

if TYPE_CHECKING:
    import numpy as np

_DIGITS = 4
_BLOCK = 256


class Index:
    """A built index, for any number of threads: one searches at a time.

    Side by side they would only pass the interpreter's lock around, four times slower.
    """

    def __init__(self, folder: Path, corpus: Path | None = None) -> None:
        """Open `folder`.

        Args:
            folder: from `build_index`.
            corpus: where the corpus is now; by default where it was then.

        Raises:
            HarnessError: `bad_corpus`: no index, or its corpus has changed; `missing_package`.
        """
        bm25s = bm25s_package()
        import numpy as np

        self.about = _about(folder)
        self._corpus = corpus or Path(self.about["corpus"])
        _check_corpus(self._corpus, self.about, folder)
        self._tokenizer = bm25s.tokenization.Tokenizer(stopwords=RULES["stopwords"])
        vocabulary = json.loads((folder / "vocabulary.json").read_text("utf-8"))
        self._tokenizer.word_to_id = vocabulary
        self._offsets = np.load(folder / "offsets.npy", mmap_mode="r")
        self._shards = [
            bm25s.BM25.load(path, mmap=True, load_vocab=False, show_progress=False)
            for path in sorted(folder.glob("shard-*"))
        ]
        self._file = self._corpus.open("rb")
        self._one = Lock()

    def identity(self) -> dict[str, Any]:
        """Retriever, rules and corpus."""
        return identity_of(self.about["corpus_sha256"], self.about["bm25s"])

    def search(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """For each query at most `topk` passages that share a word with it, best first.

        Scores are rounded to what shards agree on; equal ones stand in corpus order.
        """
        with self._one:
            return [self._search(query, topk) for query in queries]

    def close(self) -> None:
        """Close the corpus."""
        self._file.close()

    def _search(self, query: str, topk: int) -> list[Passage]:

        ids = self._words(query)
        if not ids or topk < 1:
            return []
        best: list[tuple[float, int]] = []
        for number, shard in enumerate(self._shards):
            scores = shard.get_scores_from_ids(ids)
            hits = _best(scores, topk)
            first = number * self.about["shard"]
            best += [(-round(float(scores[hit]), _DIGITS), first + int(hit)) for hit in hits]
        return [self._passage(place, -score) for score, place in sorted(best)[:topk]]

    def _words(self, query: str) -> list[int]:
        found: list[int] = next(
            self._tokenizer.streaming_tokenize([query], update_vocab=False, allow_empty=False)
        )
        return found

    def _passage(self, place: int, score: float) -> Passage:
        start, end = int(self._offsets[place]), int(self._offsets[place + 1])
        line = os.pread(self._file.fileno(), end - start, start)
        return Passage(*contents(line, self._corpus, place + 1), score)


def _best(scores: np.ndarray[Any, Any], topk: int) -> np.ndarray[Any, Any]:
    """Places of the `topk` largest positive scores, and of those that equal the last of them.

    A peak is taken of each block first: the topk-th peak bars nearly all places in one pass.
    """
    import numpy as np

    peaks = np.maximum.reduceat(scores, np.arange(0, scores.size, _BLOCK))
    hits = np.flatnonzero(scores > _bar(peaks, topk))
    return hits[scores[hits] > _bar(scores[hits], topk)]


def _bar(scores: np.ndarray[Any, Any], topk: int) -> float:
    """A little less than the topk-th largest score; 0 where there are fewer."""
    import numpy as np

    if scores.size < topk:
        return 0.0
    return float(np.partition(scores, -topk)[-topk]) * (1 - 1e-5)


class Embedded:
    """An index as a retriever of this process; searches run in threads."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def identity(self) -> dict[str, Any]:
        """The index's."""
        return self._index.identity()

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """As `Index.search`."""
        return await asyncio.to_thread(self._index.search, queries, topk)

    async def close(self) -> None:
        """Close the index."""
        self._index.close()


def identity_of(corpus_sha256: str, version: str = "") -> dict[str, Any]:
    """What decides which passages are found; the installed version of bm25s by default."""
    version = version or bm25s_package().__version__
    return {"name": "bm25s", "version": version, **RULES, "corpus_sha256": corpus_sha256}


def cached_index(corpus: Path, *, told: Told = lambda done: None) -> Index:
    """The index of `corpus` from the user's cache, built there if it is not there yet.

    Raises:
        HarnessError: as `build_index` and `Index`.
    """
    digest = corpus_digest(corpus)
    folder = cache_dir() / "bm25" / f"{digest[:24]}-{bm25s_package().__version__}"
    if not (folder / "index.json").exists():
        build_index(corpus, folder, shard=SHARD, told=told)
    return Index(folder, corpus)


def corpus_digest(corpus: Path) -> str:
    """sha256 of the file.

    Raises:
        HarnessError: `bad_corpus`: it cannot be read.
    """
    try:
        with corpus.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
        raise HarnessError("bad_corpus", why, where=str(corpus), next=f"ls -l {corpus}") from error


def _about(folder: Path) -> dict[str, Any]:
    try:
        about: dict[str, Any] = json.loads((folder / "index.json").read_bytes())
        if about["schema"] != SCHEMA:
            raise ValueError(f"schema {about['schema']!r}, but this version reads {SCHEMA}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HarnessError(
            "bad_corpus",
            f"no index: {error}",
            where=str(folder),
            next=f"hubtools retriever build CORPUS.jsonl --out {folder}",
        ) from error
    return about


def _check_corpus(corpus: Path, about: dict[str, Any], folder: Path) -> None:
    try:
        status = corpus.stat()
        now = {"corpus_size": status.st_size, "corpus_mtime_ns": status.st_mtime_ns}
    except OSError:
        now = {}
    if about.items() >= now.items() and about["corpus"] == str(corpus) and now:
        return
    if not now or corpus_digest(corpus) != about["corpus_sha256"]:
        raise HarnessError(
            "bad_corpus",
            "the corpus is not the one that was indexed",
            where=str(corpus),
            next=f"hubtools retriever build {corpus} --out {folder}.new",
        )
