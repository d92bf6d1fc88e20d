"""Secrets in text about to be published (pure). A finding tells where one is, never what it is.

Patterns start with letters that are quick to search for: tokenizers of many megabytes are scanned
too.
"""

from __future__ import annotations

import re

from hubtools.errors import Finding

_VALUE = r"[\"']?\s{0,3}[:=]\s{0,3}[\"']?"

_KINDS = {
    "Hugging Face token": (r"hf_(?:oauth_|jwt_)?[A-Za-z0-9]{30,}", r"api_org_[A-Za-z0-9]{30,}"),
    "Anthropic key": (r"sk-ant-[A-Za-z0-9_-]{24,}",),
    "OpenRouter key": (r"sk-or-(?:v1-)?[A-Za-z0-9]{32,}",),
    "Langfuse key": (r"[sp]k-lf-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",),
    "OpenAI-style key": (r"sk-(?!ant-|or-|lf-)(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{28,}",),
    "xAI key": (r"xai-[A-Za-z0-9]{40,}",),
    "Groq key": (r"gsk_[A-Za-z0-9]{40,}",),
    "Google key": (r"AIza[A-Za-z0-9_-]{35}",),
    "AWS access key id": (r"A(?:KIA|SIA)[A-Z2-7]{16}",),
    "AWS secret key": (
        r"[Aa](?i:ws_?secret(?:_?access)?_?key)" + _VALUE + r"([A-Za-z0-9/+]{40})(?![/+=])",
    ),
    "GitHub token": (r"gh[oprsu]_[A-Za-z0-9]{36,}", r"github_pat_[A-Za-z0-9_]{50,}"),
    "GitLab token": (r"glpat-[A-Za-z0-9_-]{20,}",),
    "Slack token": (r"xox[abeoprs]-[A-Za-z0-9-]{20,}",),
    "private key block": (r"-----BEGIN (?:[A-Z]{2,10} ){0,2}PRIVATE KEY(?: BLOCK)?-----",),
    "authorization header": (
        r"[Aa](?i:uthorization)"
        + _VALUE
        + r"(?:(?i:bearer|basic|token)\s{1,3})?([A-Za-z0-9._~+/=-]{16,})",
        r"[Aa](?i:pi-key)" + _VALUE + r"([A-Za-z0-9._~+/=-]{16,})",
    ),
    "bearer token": (r"[Bb](?i:earer)\s{1,3}([A-Za-z0-9._~+/=-]{20,})",),
    "password in a URL": (r"://[^\s/@:\"']{1,64}:([^\s/@:\"']{6,128})(?=@)",),
}
"""Kind → patterns; a group, where there is one, is the secret itself."""

_PATTERNS = [
    (kind, re.compile(pattern + r"(?![A-Za-z0-9])"))
    for kind, patterns in _KINDS.items()
    for pattern in patterns
]

_FIELD = re.compile(
    r"[\"']\s?(?i:api_?key|access_?token|auth_?token|secret_?key|client_?secret|password)\s?[\"']"
    r"\s{0,3}:\s{0,3}[\"']([^\"']{1,512}?)\s?[\"']"
)
"""A filled-in field of JSON that is meant to hold a secret, however harmless its value looks."""

# In JSON a line break before a key is spelled \n, which would read as a letter before it.
_ESCAPES = re.compile(r"\\[nrtbf/\\]")
_EXAMPLE = re.compile(r"(?i)your|example|dummy|placeholder|x{8}|(.)\1{9}")
_BLANKED = re.compile(r"(?i)^(?:\W*|\W*redacted\W*|\$\{?\w+\}?|<.*>)$")


def scan_text(name: str, text: str) -> list[Finding]:
    """Every secret-looking string in `text`, in order, each place once.

    Args:
        name: file name, for `where`.
        text: what would be published.

    Returns:
        Errors HT250 with kind, line and the last two characters of a long one.
    """
    text = _ESCAPES.sub("  ", text.replace('\\"', ' "'))
    found: dict[tuple[int, int], str] = {}
    for kind, pattern in [*_PATTERNS, ("filled-in secret field", _FIELD)]:
        for match in pattern.finditer(text):
            start, end = span = match.span(match.lastindex or 0)
            before = text[match.start() - 1 : match.start()]
            inside = any(start < known_end and known < end for known, known_end in found)
            unlike = _BLANKED if pattern is _FIELD else _EXAMPLE
            if (
                not inside
                and not _part_of_a_word(before, kind)
                and not unlike.search(text[start:end])
            ):
                found[span] = kind
    return [
        _finding(kind, text[start:end], f"{name}:{text.count(chr(10), 0, start) + 1}")
        for (start, end), kind in sorted(found.items())
    ]


def scan_bytes(name: str, data: bytes) -> list[Finding]:
    """`scan_text` of bytes in any encoding that keeps ASCII."""
    return scan_text(name, data.decode("utf-8", errors="replace"))


def _part_of_a_word(before: str, kind: str) -> bool:
    if kind in ("private key block", "password in a URL", "authorization header"):
        return False
    return before.isascii() and (before.isalnum() or before in ("_", "-")) and bool(before)


def _finding(kind: str, secret: str, where: str) -> Finding:
    tail = f" ending in …{secret[-2:]}" if len(secret) >= 16 and secret[-1] != "-" else ""
    return Finding(
        "HT250",
        "error",
        f"{kind}{tail} would be published",
        where=where,
        next="revoke the secret, then remove it from the file",
    )
