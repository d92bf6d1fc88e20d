"""Secrets in text about to be published (pure). A finding tells where one is, never what it is."""

from __future__ import annotations

import re

from hubtools.errors import Finding

_START = r"(?<![A-Za-z0-9_-])"
_END = r"(?![A-Za-z0-9])"

_KINDS = {
    "Hugging Face token": r"(?:hf|api_org)_(?:oauth_|jwt_)?[A-Za-z0-9]{30,}",
    "Anthropic key": r"sk-ant-[A-Za-z0-9_-]{24,}",
    "OpenRouter key": r"sk-or-(?:v1-)?[A-Za-z0-9]{32,}",
    "Langfuse key": r"(?:sk|pk)-lf-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "OpenAI-style key": r"sk-(?!ant-|or-|lf-)(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{28,}",
    "xAI key": r"xai-[A-Za-z0-9]{40,}",
    "Groq key": r"gsk_[A-Za-z0-9]{40,}",
    "Google key": r"AIza[A-Za-z0-9_-]{35}",
    "AWS access key id": r"(?:AKIA|ASIA)[A-Z2-7]{16}",
    "GitHub token": r"(?:gh[oprsu]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,})",
    "GitLab token": r"glpat-[A-Za-z0-9_-]{20,}",
    "Slack token": r"xox[abeoprs]-[A-Za-z0-9-]{20,}",
}

_PATTERNS = {kind: re.compile(_START + pattern + _END) for kind, pattern in _KINDS.items()} | {
    "AWS secret key": re.compile(
        r"(?i)aws_?secret(?:_?access)?_?key[\"']?\s{0,3}[:=]\s{0,3}[\"']?([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"
    ),
    "private key block": re.compile(r"-----BEGIN (?:[A-Z]{2,10} ){0,2}PRIVATE KEY(?: BLOCK)?-----"),
    "authorization header": re.compile(
        r"(?i)(?:authorization|x-api-key|api-key)[\"']?\s{0,3}[:=]\s{0,3}[\"']?"
        r"(?:(?:bearer|basic|token)\s{1,3})?([A-Za-z0-9._~+/=-]{16,})"
    ),
    "bearer token": re.compile(r"(?i)\bbearer\s{1,3}([A-Za-z0-9._~+/=-]{20,})"),
    "password in a URL": re.compile(
        r"(?i)\b[a-z][a-z0-9+.-]{1,15}://[^\s/@:]{1,64}:([^\s/@:]{6,128})@"
    ),
}

# In JSON a line break before a key is spelled \n, which would read as a letter before it.
_ESCAPES = re.compile(r"\\[nrtbf\"/\\]")
_PLACEHOLDER = re.compile(
    r"(?i)^[^a-z0-9]*(?:your|example|dummy|redacted|placeholder)|^(.)\1*$|[<$*]|x{8}"
)


def scan_text(name: str, text: str) -> list[Finding]:
    """Every secret-looking string in `text`, in order, each place once.

    Args:
        name: file name, for `where`.
        text: what would be published.

    Returns:
        Errors HT250 with kind, line and the last two characters.
    """
    text = _ESCAPES.sub("  ", text)
    found: dict[tuple[int, int], tuple[str, str]] = {}
    for kind, pattern in _PATTERNS.items():
        for match in pattern.finditer(text):
            group = match.lastindex or 0
            start, end = match.span(group)
            inside = any(start < known_end and known < end for known, known_end in found)
            if not inside and not _PLACEHOLDER.search(match[group]):
                found[start, end] = (kind, match[group])
    return [
        _finding(kind, secret, f"{name}:{text.count(chr(10), 0, start) + 1}")
        for (start, _), (kind, secret) in sorted(found.items())
    ]


def scan_bytes(name: str, data: bytes) -> list[Finding]:
    """`scan_text` of bytes in any encoding that keeps ASCII."""
    return scan_text(name, data.decode("utf-8", errors="replace"))


def _finding(kind: str, secret: str, where: str) -> Finding:
    tail = "" if kind == "private key block" else f" ending in …{secret[-2:]}"
    return Finding(
        "HT250",
        "error",
        f"{kind}{tail} would be published",
        where=where,
        next="revoke the secret, then remove it from the file",
    )
