"""What may reach a screen or a file: no tokens, no control characters (pure)."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\bhf_(?:(?:oauth|jwt|app)_[A-Za-z0-9._-]{16,}|[A-Za-z0-9]{16,})")
_HEADER = re.compile(r"""(?i)\b(authorization["']?\s*[:=]\s*["']?(?:bearer|basic)\s+)[^\s"']+""")
_BEARER = re.compile(r"(?i)\b(bearer\s+)(?=[^\s\d]*\d)[A-Za-z0-9._~+/=-]{16,}")
_URL_USER = re.compile(r"(?i)\b(https?://)[^\s/@]+@")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def redact(text: str) -> str:
    """`text` with Hub tokens, authorization headers and passwords in URLs blanked."""
    text = _TOKEN.sub("hf_[redacted]", text)
    text = _BEARER.sub(r"\1[redacted]", _HEADER.sub(r"\1[redacted]", text))
    return _URL_USER.sub(r"\1[redacted]@", text)


def clean(text: str) -> str:
    """`redact`, and terminal control (escape sequences, bidi overrides) made visible as `?`.

    Tabs and newlines stay: commit titles and file names come from strangers, our layout does not.
    """
    return _CONTROL.sub("?", redact(text))


def cell(value: object) -> str:
    """One table cell: `clean`, on one line, without tabs."""
    return " ".join(clean(str(value)).split("\n")).replace("\t", " ")
