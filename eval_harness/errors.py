"""The one exception of this package; `kind` says what went wrong in a word a caller can map."""

from __future__ import annotations

from typing import Literal

Kind = Literal[
    "unknown_suite",
    "bad_suite",
    "bad_model",
    "unreachable",
    "refused",
    "nothing_scored",
    "other_run",
    "missing_package",
    "bad_dataset",
    "unpinned",
    "bad_corpus",
    "no_retriever",
    "no_responses",
]


class HarnessError(Exception):
    """A failure the caller can explain to a user.

    Args:
        kind: what went wrong.
        message: one line, what happened.
        where: file, `file:line` or URL it happened at.
        next: what to do about it.
    """

    def __init__(self, kind: Kind, message: str, *, where: str = "", next: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.where = where
        self.next = next
