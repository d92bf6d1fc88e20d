"""Builds a BM25 index over a corpus of any size, shard by shard.

A shard alone would weigh words by its own counts. Every shard here is made to score as one index
over the whole corpus would, through what bm25s offers: k1 and b are chosen so that its mean length
drops out, and each word's column is scaled from the shard's inverse document frequency to the
corpus's.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_harness.errors import HarnessError

if TYPE_CHECKING:
    import numpy as np

SCHEMA = "eval_harness.bm25/1"
SHARD = 500_000
"""Passages per shard: about 6 kB of memory each while building, at 100 words a passage."""
RULES: dict[str, Any] = {"method": "lucene", "k1": 1.5, "b": 0.75, "stopwords": "english"}
_FIT = {"dtype": "float32", "int_dtype": "int32"}

Told = Callable[[int], None]


def build_index(
    corpus: Path, out: Path, *, shard: int = SHARD, told: Told = lambda done: None
) -> dict[str, Any]:
    r"""Make the folder `out`, whole or not at all.

    Args:
        corpus: JSONL of `{"id": str, "contents": ""title"\ntext"}`; it must stay where it is,
            for passages are read from it.
        out: must not exist yet.
        shard: passages that are in memory at once.
        told: told the number of indexed passages.

    Returns:
        `index.json`: passages, shards, `corpus_sha256`, `index_sha256`, rules and version.

    Raises:
        HarnessError: `bad_corpus` with file and line, or `missing_package`.
    """
    if out.exists():
        raise HarnessError(
            "bad_corpus",
            "the folder exists already",
            where=str(out),
            next=f"hubtools retriever build {corpus} --out {out}.new",
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        described = _build(corpus.resolve(), draft, shard, told)
        (draft / "index.json").write_text(json.dumps(described, indent=1, sort_keys=True))
        try:
            draft.rename(out)
        except OSError:
            if not (out / "index.json").exists():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return described


@dataclass(slots=True)
class _Counts:
    """What the first reading of a corpus finds; `tokens` are the last shard's."""

    tokenizer: Any
    offsets: list[int] = field(default_factory=lambda: [0])
    length: int = 0
    shards: int = 0
    tokens: list[list[int]] = field(default_factory=list)
    digest: Any = field(default_factory=hashlib.sha256)

    @property
    def passages(self) -> int:
        return len(self.offsets) - 1


def _build(corpus: Path, out: Path, shard: int, told: Told) -> dict[str, Any]:
    bm25s = bm25s_package()
    import numpy as np

    counts = _Counts(bm25s.tokenization.Tokenizer(stopwords=RULES["stopwords"]))
    documents = np.zeros(0, np.int64)
    for lines in _shards(corpus, shard):
        counts.tokens = list(_tokens(counts.tokenizer, lines, corpus, len(counts.offsets)))
        found = _documents(counts.tokens, len(counts.tokenizer.get_vocab_dict()))
        found[: documents.size] += documents
        documents = found
        counts.shards += 1
        counts.length += sum(map(len, counts.tokens))
        for line in lines:
            counts.digest.update(line)
            counts.offsets.append(counts.offsets[-1] + len(line))
    if not counts.length:
        raise HarnessError(
            "bad_corpus", "no passage with a word", where=str(corpus), next=f"head {corpus}"
        )
    for number, lines in enumerate(_shards(corpus, shard)):
        first = number * shard
        if counts.shards > 1:
            counts.tokens = list(_tokens(counts.tokenizer, lines, corpus, first + 1))
        _shard(out / f"shard-{number:04d}", counts, documents)
        told(first + len(lines))
    np.save(out / "offsets.npy", np.asarray(counts.offsets, np.uint64))
    vocabulary = json.dumps(counts.tokenizer.get_vocab_dict(), ensure_ascii=False)
    (out / "vocabulary.json").write_text(vocabulary, "utf-8")
    status = corpus.stat()
    return {
        "schema": SCHEMA,
        "corpus": str(corpus),
        "corpus_sha256": counts.digest.hexdigest(),
        "corpus_size": status.st_size,
        "corpus_mtime_ns": status.st_mtime_ns,
        "passages": counts.passages,
        "shards": counts.shards,
        "shard": shard,
        "rules": RULES,
        "bm25s": bm25s.__version__,
        "index_sha256": _folder_digest(out),
    }


def _shard(folder: Path, counts: _Counts, documents: np.ndarray[Any, Any]) -> None:
    """Index `counts.tokens` with the weights of the whole corpus."""
    import bm25s
    import numpy as np

    tokens, vocabulary = counts.tokens, counts.tokenizer.get_vocab_dict()
    mean, own_mean = counts.length / counts.passages, sum(map(len, tokens)) / len(tokens)
    k1, b = RULES["k1"], RULES["b"]
    fixed, per_length = k1 * (1 - b), k1 * b * own_mean / mean
    together = fixed + per_length
    index = bm25s.BM25(k1=together, b=per_length / together, method=RULES["method"], **_FIT)
    index.index((tokens, vocabulary), create_empty_token=False, show_progress=False)
    ratio = _rarity(documents, counts.passages) / _rarity(
        _documents(tokens, len(vocabulary)), len(tokens)
    )
    scores = index.scores
    scores["data"] *= np.repeat(ratio, np.diff(scores["indptr"])).astype(np.float32)
    index.vocab_dict = {}
    index.save(folder, show_progress=False)


def _rarity(documents: np.ndarray[Any, Any], passages: int) -> np.ndarray[Any, Any]:
    """Lucene's inverse document frequency."""
    import numpy as np

    rarity: np.ndarray[Any, Any] = np.log1p((passages - documents + 0.5) / (documents + 0.5))
    return rarity


def _documents(tokens: list[list[int]], words: int) -> np.ndarray[Any, Any]:
    """For each word the number of passages that hold it."""
    import numpy as np

    flat = np.fromiter(chain.from_iterable(map(set, tokens)), np.int64)
    return np.bincount(flat, minlength=words)


def _shards(corpus: Path, shard: int) -> Iterator[list[bytes]]:
    try:
        with corpus.open("rb") as stream:
            while lines := list(islice(stream, shard)):
                yield lines
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
        raise HarnessError("bad_corpus", why, where=str(corpus), next=f"ls -l {corpus}") from error


def _tokens(tokenizer: Any, lines: list[bytes], corpus: Path, first: int) -> Iterator[list[int]]:
    texts = (contents(line, corpus, first + number)[1] for number, line in enumerate(lines))
    found: Iterator[list[int]] = tokenizer.streaming_tokenize(
        texts, update_vocab=True, allow_empty=False
    )
    return found


def contents(line: bytes, corpus: Path, number: int) -> tuple[str, str]:
    """Id and contents of line `number` of a corpus.

    Raises:
        HarnessError: `bad_corpus`: it is not such a line.
    """
    try:
        data = json.loads(line)
        id, text = data["id"], data["contents"]
        if not isinstance(id, str | int) or not isinstance(text, str):
            raise TypeError("id and contents must be texts")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        packed = line.startswith(b"\x1f\x8b")
        why = "it is compressed: unpack it first" if packed else f"{type(error).__name__}: {error}"
        raise HarnessError(
            "bad_corpus",
            f"line {number} is no passage: {why}",
            where=f"{corpus}:{number}",
            next=f"sed -n {number}p {corpus}",
        ) from error
    return str(id), text


def _folder_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            digest.update(f"{file.relative_to(folder)}\n".encode())
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def bm25s_package() -> Any:
    """The package bm25s.

    Raises:
        HarnessError: `missing_package`.
    """
    try:
        import bm25s
        import bm25s.tokenization
    except ImportError as error:
        raise HarnessError(
            "missing_package", "bm25s is not installed", next="pip install 'hf-hubtools[eval]'"
        ) from error
    return bm25s
