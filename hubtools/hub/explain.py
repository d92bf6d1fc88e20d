"""Every way a Hub can fail to answer, as an error a user can act on.

Classes are told by name where they come from the client's HTTP library, which changed between its
versions, and by text where they come from the Rust storage client, which raises builtins.
"""

from __future__ import annotations

import re
import shlex

from hubtools.errors import AuthError, CheckError, EnvironmentFailure, HubtoolsError, UsageError
from hubtools.hub.session import Session, no_token

AGAIN = "run the same command again (done work is cached)"
TRANSIENT = frozenset({408, 409, 429, 500, 502, 503, 504})
NEVER_SENT = frozenset({"ConnectError", "ConnectTimeout", "ProxyError", "UnsupportedProtocol"})
_CLIENT = "huggingface_hub."
_STORAGE_STATUS = re.compile(r"HTTP status (?:client|server) error \((\d{3})")


def explain(session: Session, error: Exception, doing: str, repo: str = "") -> Exception:
    """The HubtoolsError for `error`, or `error` itself when it is none of the Hub's."""
    if isinstance(error, HubtoolsError):
        return error
    if status_of(error) is not None:
        return _answered(session, error, doing, repo)
    return (
        _at_home(session, error, doing, repo)
        or _on_the_way(session, error, doing, repo)
        or _wrapped(session, error, doing, repo)
        or _not_understood(session, error, doing, repo)
        or error
    )


def _at_home(session: Session, error: Exception, doing: str, repo: str) -> HubtoolsError | None:
    """What went wrong before anything was sent."""
    from huggingface_hub import errors as hub_errors

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
    return None


def _on_the_way(session: Session, error: Exception, doing: str, repo: str) -> HubtoolsError | None:
    """Connections, and answers to the storage client."""
    kinds, text = kinds_of(error), str(error)
    if kinds & NEVER_SENT:
        return unreachable(session, doing, text)
    if told := _STORAGE_STATUS.search(text):
        return _storage_answered(session, int(told[1]), doing, repo, text)
    if "RequestError" in kinds or isinstance(error, ConnectionError | TimeoutError):
        return broken_off(session, doing, repo, text)
    return None


def _wrapped(session: Session, error: Exception, doing: str, repo: str) -> Exception | None:
    """Builtins that the client raises: around another error, or for an answer it cannot use."""
    if isinstance(error, ValueError) and "Invalid metadata in README.md" in str(error):
        return bad_metadata(session, repo, str(error))
    if not isinstance(error, RuntimeError | ValueError | OSError):
        return None
    if isinstance(error.__cause__, Exception):
        return explain(session, error.__cause__, doing, repo)
    if isinstance(error, ValueError):
        return refused(session, doing, repo, str(error))
    return broken_off(session, doing, repo, str(error))


def _not_understood(session: Session, error: Exception, doing: str, repo: str) -> Exception | None:
    """A success whose content is not the Hub's: the client stumbles over what is missing."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = str(trace.tb_frame.f_globals.get("__name__")) if trace is not None else ""
    if isinstance(error, LookupError | TypeError | AttributeError) and where.startswith(_CLIENT):
        return odd_answer(session, doing, repo, f"{type(error).__name__}: {error}")
    return None


def status_of(error: BaseException) -> int | None:
    """HTTP status of the answer behind `error`, or None when there was no answer."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def kinds_of(error: BaseException) -> set[str]:
    """Names of the error's class and its bases."""
    return {kind.__name__ for kind in type(error).__mro__}


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
    if status == 404 and "RepositoryNotFoundError" in kinds_of(error):
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
    if status == 400 and "/shards" in why:
        return bad_chunks(session, repo, why)
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


def bad_chunks(session: Session, repo: str, why: str) -> CheckError:
    """HT323: the storage client skipped chunks that this Hub does not have, or a file changed."""
    from huggingface_hub.constants import HF_XET_CACHE

    return CheckError(
        "HT323",
        "the Hub refused the chunks of a file",
        where=repo,
        detail=(
            "Either the client's chunk cache is of an earlier server at this address, or a file"
            " changed after it was sealed.",
            _clip(session.redact(why)),
            "No file was committed.",
        ),
        next=f"rm -r {shlex.quote(HF_XET_CACHE)} (only a cache), then run the same command again",
    )


def unreachable(session: Session, doing: str, why: str) -> EnvironmentFailure:
    """HT307: a Hub that is not there."""
    return EnvironmentFailure(
        "HT307",
        f"no Hub answers at {session.endpoint}",
        where=session.endpoint,
        detail=(f"While {doing}: {_clip(session.redact(why))}",),
        next="check the network and --hub (or HF_ENDPOINT), then run the same command again",
    )


def odd_answer(session: Session, doing: str, repo: str, why: str) -> EnvironmentFailure:
    """HT309: something answered, but not as a Hub does (a proxy, a login page)."""
    return EnvironmentFailure(
        "HT309",
        f"what answered is no Hub's answer, while {doing}",
        where=repo or session.endpoint,
        detail=(_clip(session.redact(why)), "A proxy or a login page may stand in between."),
        next=f"check --hub (or HF_ENDPOINT) and the network, then {AGAIN}",
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


def _clip(text: str, limit: int = 600) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[:limit] + " …"
