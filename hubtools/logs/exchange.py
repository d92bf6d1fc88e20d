"""What one call to a model looks like in a log, whoever wrote the log (pure data).

A log reader turns a document into exchanges; an API format turns the response of an exchange into
an answer. The two know nothing of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hubtools.logs.records import Grade, Missing


@dataclass(frozen=True, slots=True)
class Answer:
    """What a response says about its origin.

    Args:
        reported, id, fingerprint, provider: as stated; empty when not there.
        missing: why `reported` is empty.
        created: Unix seconds, None when the response has no time.
        piece: part of a streamed response.
        worth: the best grade that this form of response can carry.
    """

    reported: str = ""
    missing: Missing = ""
    id: str = ""
    created: float | None = None
    fingerprint: str = ""
    provider: str = ""
    piece: bool = False
    worth: Grade = "A"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call: what was sent, what came back, for whom.

    Args:
        request, response: JSON values, or a body as text or bytes (JSON, events, JSON lines).
        role: whose turn it was, as the logger says.
        best: the best grade that this kind of log can carry.
        requested: the requested model, when it stands outside `request`.
        url: address of the request; some APIs name the model there.
        date: Unix seconds by the server's clock, for responses without a time.
        error: what failed, when no response came.
        gateway: a gateway wrote the response's fields.
        harness: no model was asked, the harness wrote this turn itself.
        answer: what the response says, when the log keeps only that.
        at: the part of the document that holds the call, for its line.
    """

    request: Any = None
    response: Any = None
    role: Any = ""
    best: Grade = "B"
    requested: Any = ""
    url: str = ""
    date: float | None = None
    error: Any = None
    gateway: bool = False
    harness: bool = False
    answer: Answer | None = None
    at: Any = None


@dataclass(frozen=True, slots=True)
class LogReader:
    """A log format; other packages add theirs under the entry point `hubtools.log_readers`.

    Args:
        name: how messages call the format.
        fits: whether a JSON object is a document, or a line, of this format; it never raises.
        exchanges: the calls in such an object.
    """

    name: str
    fits: Callable[[Mapping[str, Any]], bool]
    exchanges: Callable[[Mapping[str, Any]], Iterable[Exchange]]


@dataclass(frozen=True, slots=True)
class ApiFormat:
    """A provider's response format.

    Args:
        fits: whether a JSON object is a response, or a part of a streamed one that names a model.
        answer: what it says; `streamed` when the whole call was.
    """

    name: str
    fits: Callable[[Mapping[str, Any]], bool]
    answer: Callable[[Mapping[str, Any], bool], Answer]
