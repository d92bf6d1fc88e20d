"""The words that agents and retrievers share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class RetrieverError(Exception):
    """A search that could not be done, in one line; the sample that wanted it is not scored."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a corpus.

    Args:
        id: its name in the corpus.
        contents: the title in double quotes, a line break, the text.
        score: the retriever's own; larger is better.
    """

    id: str
    contents: str
    score: float = 0.0

    @property
    def title(self) -> str:
        """The first line without its quotes."""
        return self.contents.partition("\n")[0].strip().strip('"')

    @property
    def text(self) -> str:
        """All after the first line."""
        return self.contents.partition("\n")[2]


class Retriever(Protocol):
    """Finds passages."""

    def identity(self) -> dict[str, Any]:
        """What decides which passages are found: part of the protocol."""
        ...

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """For each query at most `topk` passages, best first.

        Raises:
            RetrieverError: not to be had, also after some tries.
        """
        ...

    async def close(self) -> None:
        """Give back connections."""
        ...
