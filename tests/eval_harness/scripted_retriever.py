"""A retriever whose passages and faults a test decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eval_harness.retrievers.passages import Passage, RetrieverError


class ScriptedRetriever:
    """Finds what `passages` holds for a query; a query in `broken` fails."""

    def __init__(self, passages: Mapping[str, Sequence[str]], broken: Sequence[str] = ()) -> None:
        self._passages, self._broken = passages, broken
        self.seen: list[tuple[tuple[str, ...], int]] = []

    def identity(self) -> dict[str, Any]:
        return {"name": "scripted"}

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        self.seen.append((tuple(queries), topk))
        for query in queries:
            if query in self._broken:
                raise RetrieverError(f"cannot find {query}")
        return [
            [Passage(str(n), text, 1.0) for n, text in enumerate(self._passages.get(query, ()))]
            for query in queries
        ]

    async def close(self) -> None:
        pass
