"""Keys, passwords and headers taken out of any JSON value, before it is kept or shown. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

GONE = "***"

_SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:api_?key|apikey|password|passwd|secret|authorization|cookie|credentials?"
    r"|(?:access|auth|bearer|hf|hub|id|refresh|session)_?token)$|^token$",
    re.IGNORECASE,
)
_HEADERS = re.compile(r"(?:^|[_-])headers$", re.IGNORECASE)
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_USERINFO = re.compile(r"(?<=://)[^\s/?#]*@")
_QUERY = re.compile(
    r"(?<=[?&])((?:[\w-]*[_-])?(?:api_?key|key|token|secret|password|sig|signature)=)[^&#\s\"']*",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(
    r"((?:api[_-]?key\\?[\"']?|\\?[\"'](?:authorization|password|secret)\\?[\"'])\s*[:=]\s*"
    r"(?:\\?[\"'])?)[^\s\"'\\,;}&]+",
    re.IGNORECASE,
)
_TOKENS = re.compile(
    r"\b(?:sk-|hf_|gsk_|ghp_|github_pat_|xox[abp]-|AIza|nvapi-)[A-Za-z0-9_-]{8,}"
    r"|(?i:\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}"
)


def scrub(value: Any, secrets: Collection[str] = ()) -> Any:
    """A copy of a JSON value without credentials.

    Values under names of secrets (`api_key`, `Authorization`, …) and all headers become `***`;
    so do, inside any text or name, user and password of a URL, keys in its query, and what looks
    like a token of a known service.

    Args:
        value: JSON value.
        secrets: texts known to be secret, wherever they occur.
    """
    if isinstance(value, dict):
        open_names = {"token"} if "logprob" in value else set()
        return {
            _text(name, secrets): scrub(item, secrets)
            if name in open_names
            else _named(name, item, secrets)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [scrub(item, secrets) for item in value]
    return _text(value, secrets) if isinstance(value, str) else value


def _named(name: str, value: Any, secrets: Collection[str]) -> Any:
    plain = _WORDS.sub("_", name)
    if _SECRET_NAME.search(plain) and isinstance(value, str | list | dict):
        return GONE if value else value
    if _HEADERS.search(plain) and isinstance(value, dict):
        return dict.fromkeys(value, GONE)
    return scrub(value, secrets)


def _text(text: str, secrets: Collection[str]) -> str:
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, GONE)
    if "://" in text:
        text = _QUERY.sub(rf"\g<1>{GONE}", _USERINFO.sub(f"{GONE}@", text))
    return _TOKENS.sub(GONE, _ASSIGNED.sub(rf"\g<1>{GONE}", text))
