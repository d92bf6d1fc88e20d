"""The harness's errors in hubtools' words: one id for each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubtools.errors import (
    AuthError,
    CheckError,
    EnvironmentFailure,
    HubtoolsError,
    UsageError,
)

if TYPE_CHECKING:
    from eval_harness.errors import HarnessError

_KINDS: dict[str, tuple[type[HubtoolsError], str]] = {
    "unknown_suite": (UsageError, "HT401"),
    "bad_suite": (UsageError, "HT402"),
    "bad_model": (CheckError, "HT403"),
    "unreachable": (EnvironmentFailure, "HT404"),
    "refused": (AuthError, "HT405"),
    "nothing_scored": (CheckError, "HT406"),
    "other_run": (CheckError, "HT407"),
    "missing_package": (EnvironmentFailure, "HT408"),
    "bad_dataset": (CheckError, "HT425"),
    "unpinned": (UsageError, "HT426"),
    "bad_corpus": (CheckError, "HT427"),
    "no_retriever": (EnvironmentFailure, "HT428"),
    "no_responses": (CheckError, "HT420"),
}


def bridged(error: HarnessError) -> HubtoolsError:
    """The same failure as a HubtoolsError."""
    kind, id = _KINDS[error.kind]
    return kind(
        id,
        error.message,
        where=error.where,
        detail=("Answers that were already given are kept.",) if error.kind in _MIDWAY else (),
        next=error.next,
    )


_MIDWAY = ("unreachable", "refused")
