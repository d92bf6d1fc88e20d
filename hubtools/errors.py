"""Errors that carry the fix: what happened, where, and which command to run next.

Stdlib only, so that any room can raise them. The CLI is the one place that prints them
(`hubtools.cli.failure`). Ids are stable and listed in `docs/errors.md`:
HT0xx manifest and card, HT1xx checkpoint, HT2xx logs and provenance, HT3xx Hub,
HT4xx evaluation, HT5xx release and store, HT6xx embedded Hub, HT9xx environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, Literal


class ExitCode(IntEnum):
    """Process exit codes, as promised in the CLI reference."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    CHECK = 3
    AUTH = 4
    MOVED = 5
    PARTIAL = 6
    CHANGES = 10
    INTERRUPTED = 130


class HubtoolsError(Exception):
    """A failure a user can act on.

    Args:
        id: stable id, `HT` and three digits.
        message: one line, what happened.
        where: `file:line`, repo id or URL it happened at; empty when there is no place.
        detail: further lines: what was expected, what was found, what did and did not happen.
        next: a command the user can run (or, failing that, the change to make).
    """

    exit_code: ExitCode = ExitCode.FAILURE

    def __init__(
        self, id: str, message: str, *, where: str = "", detail: Sequence[str] = (), next: str = ""
    ) -> None:
        super().__init__(message)
        self.id = id
        self.message = message
        self.where = where
        self.detail = tuple(detail)
        self.next = next

    def to_json(self) -> dict[str, Any]:
        """The `error` object of `--json` output."""
        return {
            "id": self.id,
            "message": self.message,
            "where": self.where,
            "detail": list(self.detail),
            "next": self.next,
            "exit_code": int(self.exit_code),
        }

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"[{self.id}] {self.message}{place}"


class UsageError(HubtoolsError):
    """Wrong flags, an unknown member, a manifest that does not parse: exit 2."""

    exit_code = ExitCode.USAGE


class CheckError(HubtoolsError):
    """A check or a verdict failed; nothing was published: exit 3."""

    exit_code = ExitCode.CHECK


class AuthError(HubtoolsError):
    """No token, a refused token, or one without write scope: exit 4."""

    exit_code = ExitCode.AUTH


class RemoteMovedError(HubtoolsError):
    """The remote head is not the one the plan was made on: exit 5."""

    exit_code = ExitCode.MOVED


class PartialError(HubtoolsError):
    """Some targets were released and some were not: exit 6."""

    exit_code = ExitCode.PARTIAL


class EnvironmentFailure(HubtoolsError):
    """Disk full, no network, a dead child process, a busy port: exit 1."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found; checks collect all of them before anything is done.

    Args:
        id: stable id, as for errors.
        level: `error` stops the release, `warning` and `info` are shown.
        message, where, next: as for errors.
        member: which checkpoint it is about; empty for the whole family.
    """

    id: str
    level: Literal["error", "warning", "info"]
    message: str
    where: str = ""
    next: str = ""
    member: str = ""

    def to_json(self) -> dict[str, str]:
        """One entry of a `findings` list in `--json` output."""
        return asdict(self)
