"""Addresses and keys of servers: what may be shown of them, and how the rest is taken out."""

from __future__ import annotations

import os
from base64 import b64encode
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

HIDDEN = "(an address that cannot be shown: it is none, or a password may be in it)"
GONE = "***"
_SHORTEST = 6
"""Characters of a secret that is looked for in answers: `EMPTY` is a word as well as a key."""


def public_url(url: str) -> str:
    """`url` without user, password, query and fragment; `HIDDEN` where these cannot be told apart.

    An `@` outside the place of user and password may belong to a password with `/`, `?` or `#`.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  raises where a password stands in its place
    except ValueError:
        return HIDDEN
    user, _, host = parts.netloc.rpartition("@")
    if "@" in f"{user}{parts.scheme}{parts.path}{parts.query}{parts.fragment}":
        return HIDDEN
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def is_server(url: str) -> bool:
    """Whether `url` can be the address of a server."""
    shown = public_url(url)
    return shown.startswith(("http://", "https://")) and bool(urlsplit(shown).hostname)


def split_user(url: str) -> tuple[str, str]:
    """`url` without user and password, and these as they stand in it."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), user


class Credentials:
    """What is sent to a server so that it answers, and must be kept nowhere.

    Args:
        url: of the server, maybe with user and password.
        key_env: environment variable with the key; empty or unset: none.
    """

    def __init__(self, url: str, key_env: str) -> None:
        self.key = os.environ.get(key_env, "") if key_env else ""
        user = split_user(url)[1] if is_server(url) else ""
        plain = unquote(user)
        self._basic = b64encode(plain.encode()).decode() if user else ""
        passwords = [part for text in (user, plain) if (part := text.partition(":")[2])]
        found = {self.key, self._basic, user, plain, *passwords} - {""}
        self._secrets = sorted(found, key=len, reverse=True)

    @property
    def sendable(self) -> bool:
        """Whether the key can stand in a header: printable ASCII."""
        return self.key.isascii() and (self.key.isprintable() or not self.key)

    def headers(self) -> dict[str, str]:
        """The key if there is one, else user and password."""
        if self.key:
            return {"Authorization": f"Bearer {self.key}"}
        return {"Authorization": f"Basic {self._basic}"} if self._basic else {}

    def hidden(self, text: str) -> str:
        """Words of a server about a failure, without any of it."""
        for secret in self._secrets:
            text = text.replace(secret, GONE)
        return text

    def clean(self, value: Any) -> Any:
        """A JSON value without what is too long to be there by chance."""
        if isinstance(value, str):
            for secret in self._secrets:
                if len(secret) >= _SHORTEST:
                    value = value.replace(secret, GONE)
            return value
        if isinstance(value, dict):
            return {self.clean(name): self.clean(one) for name, one in value.items()}
        return [self.clean(one) for one in value] if isinstance(value, list) else value
