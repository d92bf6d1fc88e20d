"""One connection to one Hub: explicit endpoint, a token that never shows, bounded patience."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hubtools.errors import AuthError, UsageError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

HUB = "https://huggingface.co"
_TIMEOUTS = (20.0, 300.0, 300.0, 300.0)  # seconds: connect, read, write, pool
_SECRET = re.compile(r"\bhf_[A-Za-z0-9]{8,}|(?<=[Bb]earer )[\w.~+/=-]+|(?<=://)[^/\s@]+(?=@)")


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long to try again.

    Args:
        attempts: tries in all.
        base: seconds before the second try; doubled each time.
        cap: longest wait in seconds; a server's `Retry-After` is honoured up to ten times this.
    """

    attempts: int = 6
    base: float = 1.0
    cap: float = 30.0

    def waits(self) -> Iterator[float | None]:
        """Seconds to wait after each failed try; None after the last."""
        for turn in range(self.attempts - 1):
            yield min(self.cap, self.base * 2**turn)
        yield None


@dataclass(frozen=True, slots=True)
class Account:
    """Who the token belongs to.

    Args:
        name: user name.
        orgs: organisation → role in it (`read`, `contributor`, `write`, `admin`; empty if unsaid).
        role: of the token: `read`, `write`, `fineGrained`, or empty if unsaid.
    """

    name: str
    orgs: dict[str, str]
    role: str

    def may_create_in(self, namespace: str) -> bool:
        """Whether a new repo in `namespace` can be expected to be allowed."""
        if namespace == self.name:
            return True
        return namespace in self.orgs and self.orgs[namespace] != "read"


@dataclass(frozen=True, slots=True)
class Session:
    """What the other modules talk through; made by `connect`."""

    endpoint: str
    api: HfApi
    token: str | None = field(repr=False)
    patience: Patience = field(default_factory=Patience)

    def redact(self, text: str) -> str:
        """`text` without tokens and passwords."""
        if self.token:
            text = text.replace(self.token, "[token]")
        return _SECRET.sub("[token]", text)

    @property
    def loopback(self) -> bool:
        """Whether the Hub is on this machine: the embedded one, or another for tests."""
        return is_loopback(self.endpoint)

    def require_token(self) -> str:
        """The token.

        Raises:
            AuthError: HT302 when there is none.
        """
        if self.token is None:
            raise no_token(self.endpoint)
        return self.token

    def whoami(self) -> Account:
        """The account behind the token, as the Hub says.

        Raises:
            AuthError: HT302 no token, HT303 a refused one.
            EnvironmentFailure: HT307 and HT309 when the Hub is not there.
        """
        from hubtools.hub.explain import odd_answer
        from hubtools.hub.network import call

        self.require_token()
        doing = "asking who the token belongs to"
        answer: Any = call(self, doing, self.api.whoami)
        if not isinstance(answer, dict) or "name" not in answer:
            raise odd_answer(self, doing, "", "no account is named")
        auth = (answer.get("auth") or {}).get("accessToken") or {}
        orgs = {o["name"]: str(o.get("roleInOrg") or "") for o in answer.get("orgs") or []}
        return Account(str(answer["name"]), orgs, str(auth.get("role") or ""))


def connect(
    endpoint: str | None = None, *, token: str | None = None, patience: Patience | None = None
) -> Session:
    """A session with the Hub at `endpoint`; nothing is sent yet.

    Args:
        endpoint: base URL; None for the client library's own default.
        token: given only when the caller owns the server; otherwise the one from the environment
            or from `hf auth login` is used. Its absence is an error only when it is needed.
        patience: how often to try again.

    Raises:
        UsageError: HT321 when the endpoint is not an http(s) URL, or has a password in it.
        AuthError: HT303 when a token was to be obtained (OIDC, refresh) and that failed, or when it
            cannot be one.
    """
    import huggingface_hub
    from huggingface_hub import constants
    from huggingface_hub.errors import DeviceCodeError, OIDCError
    from huggingface_hub.utils import logging as hub_logging
    from huggingface_hub.utils.tqdm import disable_progress_bars

    url = (endpoint or constants.ENDPOINT).rstrip("/")
    if not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", url):
        raise UsageError(
            "HT321",
            f"not the URL of a Hub: {_SECRET.sub('[token]', url)!r}",
            next=f"give a URL such as {HUB}, or `local` for the embedded Hub",
        )
    if token is None:
        try:
            token = huggingface_hub.get_token()
        except (OIDCError, DeviceCodeError) as error:
            raise AuthError(
                "HT303",
                "no token could be obtained",
                where=url,
                detail=(_SECRET.sub("[token]", str(error)),),
                next="hf auth login, or set HF_TOKEN, then run the same command again",
            ) from error
    if token is not None and not re.fullmatch(r"[!-~]*", token):
        raise AuthError(
            "HT303",
            "the token holds characters that no token has",
            where=url,
            detail=("A blank, a line break or a letter with an accent came with it.",),
            next="hf auth login, or set HF_TOKEN, then run the same command again",
        )
    hub_logging.get_logger().setLevel(logging.ERROR)  # its retries are ours to tell
    if constants.HF_HUB_DISABLE_PROGRESS_BARS is None:
        disable_progress_bars()
    huggingface_hub.set_client_factory(_client)
    api = huggingface_hub.HfApi(
        endpoint=url, token=token if token else False, library_name="hubtools"
    )
    return Session(url, api, token, patience or Patience())


def _client() -> Any:
    from huggingface_hub.utils._http import default_client_factory

    client = default_client_factory()
    client.timeout = _TIMEOUTS  # its own default waits for ever
    return client


def is_loopback(endpoint: str) -> bool:
    """Whether a URL's host is this machine."""
    return urlsplit(endpoint).hostname in {"127.0.0.1", "localhost", "::1"}


def no_token(endpoint: str) -> AuthError:
    """HT302, the one way to say it."""
    get = "hf auth login, or set HF_TOKEN"
    if is_loopback(endpoint):
        get = 'export HF_TOKEN="$(cat ROOT/token)" with the --root of the embedded Hub'
    return AuthError(
        "HT302",
        "no Hugging Face token",
        where=endpoint,
        detail=("Looked at HF_TOKEN and at the login of `hf auth login`. Nothing was sent.",),
        next=f"{get}, then run the same command again",
    )
