"""How long a search takes: the embedded BM25 index, alone and behind its server.

The corpus is made up: words of a vocabulary of 60,000 with the frequencies of natural text, a
hundred to a passage. `--quick` takes a tenth of the passages.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import resource
import statistics
import tempfile
import time
from contextlib import closing
from itertools import accumulate
from multiprocessing.connection import Connection
from pathlib import Path

from common import emit, quick

from eval_harness.retrievers.bm25 import Index
from eval_harness.retrievers.building import build_index
from eval_harness.retrievers.client import Client, service_identity
from eval_harness.retrievers.server import serving

WORDS = [f"word{number:x}" for number in range(60_000)]
ZIPF = list(accumulate(1 / (rank + 1) for rank in range(len(WORDS))))
QUERIES, TOPK, IN_FLIGHT = 500, 3, 32
TARGET_MS = 2.0


def main() -> None:
    """Print the measures."""
    passages = 10_000 if quick() else 100_000
    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = _corpus(folder / "corpus.jsonl", passages, draw)
        begin = time.perf_counter()
        build_index(corpus, folder / "index")
        took = time.perf_counter() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        size = sum(file.stat().st_size for file in (folder / "index").rglob("*") if file.is_file())
        begin = time.perf_counter()
        with closing(Index(folder / "index")) as index:
            opened = time.perf_counter() - begin
            queries = [_text(draw, 10) for _ in range(QUERIES)]
            alone = _alone(index, queries)
        served = _served(folder / "index", queries)
        mean = statistics.fmean(alone)
        emit(
            "retrieval: per query, in process",
            mean,
            "ms",
            {"behind /retrieve, 32 in flight": round(statistics.fmean(served), 2)},
            TARGET_MS,
            mean <= TARGET_MS,
            p99_ms=round(statistics.quantiles(alone, n=100)[98], 2),
            passages=passages,
            queries=QUERIES,
            topk=TOPK,
            build_s=round(took, 1),
            build_peak_mb=round(peak),
            index_mb=size >> 20,
            open_s=round(opened, 3),
        )


def _alone(index: Index, queries: list[str]) -> list[float]:
    index.search(queries[:20], TOPK)
    taken = []
    for query in queries:
        begin = time.perf_counter()
        index.search([query], TOPK)
        taken.append((time.perf_counter() - begin) * 1e3)
    return taken


def _served(folder: Path, queries: list[str]) -> list[float]:
    """Time over number of queries, in ten portions; the server is another process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(folder, theirs))
    process.start()
    try:
        return asyncio.run(_portions(ours.recv(), queries))
    finally:
        ours.send(None)
        process.join()


def _serve(folder: Path, pipe: Connection) -> None:
    with closing(Index(folder)) as index, serving(index) as server:
        pipe.send(server.url)
        pipe.recv()


async def _portions(url: str, queries: list[str]) -> list[float]:
    client = Client(url, service_identity(url))
    gate = asyncio.Semaphore(IN_FLIGHT)

    async def one(query: str) -> None:
        async with gate:
            await client.search([query], TOPK)

    async def portion(some: list[str]) -> float:
        begin = time.perf_counter()
        await asyncio.gather(*map(one, some))
        return (time.perf_counter() - begin) * 1e3 / len(some)

    await portion(queries[:50])
    taken = [await portion(queries[start::10]) for start in range(10)]
    await client.close()
    return taken


def _corpus(path: Path, passages: int, draw: random.Random) -> Path:
    with path.open("w") as stream:
        for number in range(passages):
            contents = f'"Title {number}"\n{_text(draw, 100)}'
            stream.write(json.dumps({"id": str(number), "contents": contents}) + "\n")
    return path


def _text(draw: random.Random, words: int) -> str:
    return " ".join(draw.choices(WORDS, cum_weights=ZIPF, k=words))


if __name__ == "__main__":
    main()
