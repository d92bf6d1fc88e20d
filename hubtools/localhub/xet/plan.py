"""Reconstruction plans: which byte ranges of which xorbs a client must fetch to rebuild a file.

Pure. Source: the download page of the xet specification on the Hub's documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hubtools.localhub.xet.hashes import text_of
from hubtools.localhub.xet.shard import Term
from hubtools.localhub.xet.xorb import Chunk

ChunksOf = Callable[[bytes], Sequence[Chunk]]
"""All chunks of the xorb with this raw hash."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """One request: chunks `start` to `end` (exclusive), bytes `first` to `last` (inclusive)."""

    xorb: bytes
    start: int
    end: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Terms in file order, what to fetch for them, and how many bytes of the first to skip."""

    skip: int
    terms: tuple[Term, ...]
    fetches: tuple[Fetch, ...]


def plan_range(terms: Sequence[Term], chunks_of: ChunksOf, start: int, end: int) -> Plan:
    """Plan for bytes `start` to `end` (exclusive) of a file, trimmed to whole chunks.

    Args:
        terms: the whole file, in order.
        chunks_of: chunk lists of its xorbs.
        start: first byte wanted, at least 0.
        end: the byte after the last wanted one: more than `start` (0 for an empty file), at most
            the size of the file.
    """
    picked: list[Term] = []
    skip = 0
    at = 0
    for term in terms:
        if at < end and at + term.length > start:
            trimmed, before = _trimmed(term, chunks_of(term.xorb), start - at, end - at)
            if not picked:
                skip = max(0, start - at) - before
            picked.append(trimmed)
        at += term.length
    return Plan(skip, tuple(picked), tuple(_fetches(picked, chunks_of)))


def _trimmed(term: Term, chunks: Sequence[Chunk], start: int, end: int) -> tuple[Term, int]:
    """`term` without the chunks outside bytes start..end of it; and the bytes dropped before."""
    first, last, before, length = term.start, term.start, 0, 0
    at = 0
    for index in range(term.start, term.end):
        raw = chunks[index].raw
        if at + raw <= start:
            first, before = index + 1, at + raw
        elif at < end:
            last, length = index + 1, length + raw
        at += raw
    return Term(term.xorb, first, last, length), before


def _fetches(terms: Sequence[Term], chunks_of: ChunksOf) -> list[Fetch]:
    """Runs of chunks that overlap or touch are fetched once."""
    runs: list[tuple[bytes, int, int]] = []
    for xorb, start, end in sorted((term.xorb, term.start, term.end) for term in terms):
        if runs and runs[-1][0] == xorb and start <= runs[-1][2]:
            runs[-1] = (xorb, runs[-1][1], max(end, runs[-1][2]))
        else:
            runs.append((xorb, start, end))
    fetches = []
    for xorb, start, end in runs:
        chunks = chunks_of(xorb)
        fetches.append(Fetch(xorb, start, end, chunks[start].start, chunks[end - 1].end - 1))
    return fetches


def plan_json(plan: Plan, url_of: Callable[[Fetch], str]) -> dict[str, Any]:
    """The answer to a reconstruction query, in the protocol's words.

    Args:
        plan: what to answer.
        url_of: where a client gets the bytes of one fetch.
    """
    fetch_info: dict[str, list[dict[str, Any]]] = {}
    for fetch in plan.fetches:
        entry = {
            "range": {"start": fetch.start, "end": fetch.end},
            "url": url_of(fetch),
            "url_range": {"start": fetch.first, "end": fetch.last},
        }
        fetch_info.setdefault(text_of(fetch.xorb), []).append(entry)
    terms = [
        {
            "hash": text_of(term.xorb),
            "unpacked_length": term.length,
            "range": {"start": term.start, "end": term.end},
        }
        for term in plan.terms
    ]
    return {"offset_into_first_range": plan.skip, "terms": terms, "fetch_info": fetch_info}
