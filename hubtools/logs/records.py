"""What a raw log says, one response at a time (pure data).

A record repeats what was logged; what it is worth is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Grade = Literal["A", "B", "C", "D", "E", "F"]
"""How close to the wire: A the provider's own bytes, B the body of a direct call as the client
saved it, C rewritten by a gateway that keeps the field, D telemetry, E only what was requested, F
what a model said about itself."""

Missing = Literal["", "absent", "null", "not text", "other format"]
"""Why a response names no model."""

BadKind = Literal[
    "damaged", "cut off", "too long", "not UTF-8", "not JSON", "not YAML", "too deep",
    "duplicate key", "not an object", "not a response", "reader failed",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Record:
    """One response, or one piece of a streamed response.

    Args:
        file, line: where it was read; `file` relative to the project.
        role: whose turn it was, from the logger's own field; `unknown` when it does not say.
        requested, reported: model names in the request and in the response; empty when not there.
        missing: why `reported` is empty.
        id: the response id; empty when there is none.
        created: Unix seconds as logged, None when there is none.
        fingerprint, provider: as the response states them.
        body: digest of the response, to tell a copy from a different body with the same id.
        piece: part of a streamed response; pieces with one id are one response.
        offered: fallback models that the request allowed.
        error: what failed, when the API answered with an error instead.
        harness: no model made this turn, the harness wrote it.
    """

    file: str
    line: int
    grade: Grade
    role: str = "unknown"
    requested: str = ""
    reported: str = ""
    missing: Missing = ""
    id: str = ""
    created: float | None = None
    fingerprint: str = ""
    provider: str = ""
    body: str = ""
    piece: bool = False
    offered: tuple[str, ...] = ()
    error: str = ""
    harness: bool = False


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that gives no record, and why; never its content."""

    file: str
    line: int
    kind: BadKind
    detail: str = ""
