"""Calls to a Hub: tried again where that is safe, failing with an error that says what to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from hubtools.hub.explain import NEVER_SENT, TRANSIENT, explain, kinds_of, status_of
from hubtools.hub.session import Session

T = TypeVar("T")


def call(session: Session, doing: str, work: Callable[[], T], *, repo: str = "") -> T:
    """Do `work`, which must be safe to repeat, again while the Hub is busy or the line breaks.

    Args:
        session: who is spoken to, and how patiently.
        doing: what was being done, for the message: `reading the file list`.
        work: the calls to the client library.
        repo: the repo it is about, if one.

    Raises:
        HubtoolsError: as `explain` says; at once when trying again cannot help.
    """
    for wait in session.patience.waits():
        try:
            return work()
        except Exception as error:
            if wait is None or not passing(error) or never_sent(error):
                raise_explained(session, error, doing, repo)
            time.sleep(asked_wait(session, error, wait))
    raise AssertionError("waits() ends with None")


@contextmanager
def translated(session: Session, doing: str, *, repo: str = "") -> Iterator[None]:
    """Turn what the client library raises into a HubtoolsError; a bug stays what it is."""
    try:
        yield
    except Exception as error:
        raise_explained(session, error, doing, repo)


def raise_explained(session: Session, error: Exception, doing: str, repo: str) -> NoReturn:
    """Raise what `explain` makes of `error`; the original, unredacted, is not chained to it."""
    told = explain(session, error, doing, repo)
    if told is error:
        raise error
    raise told from None


def passing(error: BaseException) -> bool:
    """Whether the same request may succeed later: busy, broken line, no connection."""
    status = status_of(error)
    if status is not None:
        return status in TRANSIENT
    kinds = kinds_of(error)
    broken = isinstance(error, ConnectionError | TimeoutError) or "TransportError" in kinds
    return broken and "OfflineModeIsEnabled" not in kinds


def never_sent(error: BaseException) -> bool:
    """Whether no connection came about, so that the request cannot have had an effect."""
    return status_of(error) is None and bool(kinds_of(error) & NEVER_SENT)


def asked_wait(session: Session, error: BaseException, wait: float) -> float:
    """Seconds to wait: what the Hub asked for (`RateLimit`, `Retry-After`), else `wait`."""
    from huggingface_hub.utils._http import parse_ratelimit_headers

    headers = getattr(getattr(error, "response", None), "headers", None)
    if headers is None:
        return wait
    limit = parse_ratelimit_headers(headers)
    asked = str(headers.get("retry-after", ""))
    if limit is not None and limit.remaining == 0:
        asked = str(limit.reset_in_seconds + 1)
    if not asked.isdigit():
        return wait
    return max(wait, min(float(asked), 10 * session.patience.cap))


def request(session: Session, method: str, path: str, **options: Any) -> Any:
    """One authorised request to the session's endpoint, through the client's own connection.

    Returns:
        The response; its status is the caller's to judge.
    """
    from huggingface_hub import get_session
    from huggingface_hub.utils._headers import build_hf_headers

    headers = build_hf_headers(token=session.token or False, library_name="hubtools")
    return get_session().request(method, f"{session.endpoint}{path}", headers=headers, **options)
