"""Every way a Hub can fail to answer, as an error a user can act on; and patience for reads.

Classes are told by name where they come from the client's HTTP library, which changed between its
versions, and by text where they come from the Rust storage client, which raises builtins.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from hubtools.errors import AuthError, CheckError, EnvironmentFailure, HubtoolsError, UsageError
from hubtools.hub.session import Session, no_token

T = TypeVar("T")

AGAIN = "run the same command again (done work is cached)"
TRANSIENT = frozenset({408, 409, 429, 500, 502, 503, 504})
_STORAGE_STATUS = re.compile(r"HTTP status (?:client|server) error \((\d{3})")
_NEVER_SENT = {"ConnectError", "ConnectTimeout", "ProxyError", "UnsupportedProtocol"}


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


def status_of(error: BaseException) -> int | None:
    """HTTP status of the answer behind `error`, or None when there was no answer."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def passing(error: BaseException) -> bool:
    """Whether the same request may succeed later: busy, broken line, no connection."""
    status = status_of(error)
    if status is not None:
        return status in TRANSIENT
    return "TransportError" in _kinds(error) or isinstance(error, ConnectionError | TimeoutError)


def never_sent(error: BaseException) -> bool:
    """Whether no connection came about, so that the request cannot have had an effect."""
    return status_of(error) is None and bool(_kinds(error) & _NEVER_SENT)


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


def explain(session: Session, error: Exception, doing: str, repo: str = "") -> Exception:
    """The HubtoolsError for `error`, or `error` itself when it is none of the Hub's."""
    from huggingface_hub import errors as hub_errors

    if isinstance(error, HubtoolsError):
        return error
    if status_of(error) is not None:
        return _answered(session, error, doing, repo)
    kinds = _kinds(error)
    if isinstance(error, hub_errors.LocalTokenNotFoundError):
        return no_token(session.endpoint)
    if isinstance(error, hub_errors.OfflineModeIsEnabled):
        return EnvironmentFailure(
            "HT320",
            f"offline mode is on: {doing} needs the Hub",
            where=repo or session.endpoint,
            detail=("HF_HUB_OFFLINE is set. Nothing was sent.",),
            next="unset HF_HUB_OFFLINE, then run the same command again",
        )
    if isinstance(error, hub_errors.HFValidationError):
        return UsageError(
            "HT311",
            f"repo id not allowed: {repo}",
            where=repo,
            detail=(session.redact(str(error)),),
            next="correct `owner` and `name` in family.toml, then: hubtools plan",
        )
    if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
        return EnvironmentFailure(
            "HT322",
            f"a file of the release cannot be read while {doing}",
            where=str(error.filename or repo),
            detail=("Nothing was committed to this repo.",),
            next=AGAIN,
        )
    if kinds & _NEVER_SENT:
        return unreachable(session, doing, str(error))
    if told := _STORAGE_STATUS.search(str(error)):
        return _storage_answered(session, int(told[1]), doing, repo, str(error))
    if "RequestError" in kinds or isinstance(error, ConnectionError | TimeoutError):
        return broken_off(session, doing, repo, str(error))
    if isinstance(error, ValueError) and "Invalid metadata in README.md" in str(error):
        return bad_metadata(session, repo, str(error))
    if isinstance(error, RuntimeError | ValueError | OSError) and isinstance(
        error.__cause__, Exception
    ):
        return explain(session, error.__cause__, doing, repo)
    if type(error).__module__.startswith("hf_xet") or isinstance(error, RuntimeError | OSError):
        return broken_off(session, doing, repo, str(error))
    if isinstance(error, ValueError):  # how the client reports an answer it cannot use
        return refused(session, doing, repo, str(error))
    return error


def _answered(session: Session, error: Exception, doing: str, repo: str) -> HubtoolsError:
    status = status_of(error)
    said = str(getattr(error, "server_message", None) or "")
    where = repo or session.endpoint
    detail = (_clip(session.redact(said)),) if said else ()
    if status == 401 and session.token is None:
        return no_token(session.endpoint)
    if status == 401:
        return AuthError(
            "HT303",
            f"the Hub refused the token while {doing}",
            where=where,
            detail=(*detail, "Nothing was published."),
            next="hf auth login (or set another HF_TOKEN), then run the same command again",
        )
    if status == 403:
        return no_scope(session, doing, repo, detail)
    if status == 404 and "RepositoryNotFoundError" in _kinds(error):
        return EnvironmentFailure(
            "HT308",
            f"the Hub knows no such repo, or this token may not see it: {repo}",
            where=where,
            detail=(f"While {doing}.",),
            next="check the name and `hf auth whoami`, then: hubtools plan",
        )
    if status in TRANSIENT:
        return EnvironmentFailure(
            "HT309",
            f"the Hub is busy or broken: it answered {status} while {doing}",
            where=where,
            detail=(*detail, f"Tried {session.patience.attempts} times."),
            next=f"wait a few minutes, then {AGAIN}",
        )
    return refused(session, doing, repo, f"{status}: {said}" if said else str(error))


def _storage_answered(
    session: Session, status: int, doing: str, repo: str, why: str
) -> HubtoolsError:
    if status == 404 and "xet-write-token" in why:
        return no_xet(session, repo)
    if status in (401, 403):
        return no_scope(session, doing, repo)
    if status in TRANSIENT:
        return broken_off(session, doing, repo, why)
    return refused(session, doing, repo, why)


def no_scope(session: Session, doing: str, repo: str, detail: tuple[str, ...] = ()) -> AuthError:
    """HT304: the token is good, but not for this."""
    return AuthError(
        "HT304",
        f"this token may not write to {repo or session.endpoint}",
        where=repo or session.endpoint,
        detail=(*detail, f"The Hub answered 403 while {doing}."),
        next="make a token with write access to this repo, hf auth login, then "
        "run the same command again",
    )


def no_xet(session: Session, repo: str) -> EnvironmentFailure:
    """HT306: the client chose xet storage, and this Hub has none."""
    return EnvironmentFailure(
        "HT306",
        "this endpoint has no Xet storage: set HF_HUB_DISABLE_XET=1",
        where=repo or session.endpoint,
        detail=("The client library does not fall back by itself. No file was committed.",),
        next="export HF_HUB_DISABLE_XET=1, then run the same command again",
    )


def unreachable(session: Session, doing: str, why: str) -> EnvironmentFailure:
    """HT307: a Hub that is not there."""
    return EnvironmentFailure(
        "HT307",
        f"no Hub answers at {session.redact(session.endpoint)}",
        where=session.redact(session.endpoint),
        detail=(f"While {doing}: {_clip(session.redact(why))}",),
        next="check the network and --hub (or HF_ENDPOINT), then run the same command again",
    )


def broken_off(session: Session, doing: str, repo: str, why: str) -> EnvironmentFailure:
    """HT319: the connection ended in the middle; what was sent is kept by the Hub."""
    return EnvironmentFailure(
        "HT319",
        f"the connection to the Hub broke off while {doing}",
        where=repo or session.endpoint,
        detail=(_clip(session.redact(why)), "What arrived is kept and not sent twice."),
        next=AGAIN,
    )


def refused(session: Session, doing: str, repo: str, why: str) -> CheckError:
    """HT310: the Hub understood and said no."""
    return CheckError(
        "HT310",
        f"the Hub refused the request while {doing}",
        where=repo or session.endpoint,
        detail=(_clip(session.redact(why)),),
        next="correct what the Hub names above, then run the same command again",
    )


def bad_metadata(session: Session, repo: str, why: str) -> CheckError:
    """HT316: the Hub does not accept the README's front matter."""
    return CheckError(
        "HT316",
        "the Hub refuses the README's metadata",
        where=repo,
        detail=(_clip(session.redact(why)), "Nothing was committed to this repo."),
        next="correct the front matter (the manifest or prose it comes from), then: hubtools plan",
    )


def request(session: Session, method: str, path: str, **options: Any) -> Any:
    """One authorised request to the session's endpoint, through the client's own connection.

    Returns:
        The response; its status is the caller's to judge.
    """
    from huggingface_hub import get_session
    from huggingface_hub.utils._headers import build_hf_headers

    headers = build_hf_headers(token=session.token or False, library_name="hubtools")
    return get_session().request(method, f"{session.endpoint}{path}", headers=headers, **options)


def _kinds(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _clip(text: str, limit: int = 600) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[:limit] + " …"
