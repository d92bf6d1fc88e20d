"""What may reach a screen or a file: no tokens, no control characters (pure)."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\bhf_(?:(?:oauth|jwt|app)_[A-Za-z0-9._-]{16,}|[A-Za-z0-9]{16,})")
_HEADER = re.compile(r"""(?i)\b(authorization["']?\s*[:=]\s*["']?(?:bearer|basic)\s+)[^\s"']+""")
_BEARER = re.compile(r"(?i)\b(bearer\s+)(?=[^\s\d]*\d)[A-Za-z0-9._~+/=-]{16,}")
_URL_USER = re.compile(r"(?i)\b(https?://)[^\s/@]+@")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

_LONGEST, _BEGIN = 2000, 300


def redact(text: str) -> str:
    """`text` with Hub tokens, authorization headers and passwords in URLs blanked."""
    text = _TOKEN.sub("hf_[redacted]", text)
    text = _BEARER.sub(r"\1[redacted]", _HEADER.sub(r"\1[redacted]", text))
    return _URL_USER.sub(r"\1[redacted]@", text)


def clean(text: str) -> str:
    """`redact`, and terminal control (escape sequences, bidi overrides) made visible as `?`.

    Tabs and newlines stay.
    """
    return _CONTROL.sub("?", redact(text))


def one_line(text: str) -> str:
    r"""`clean`, on one line whatever it quotes: what has a newline in it must not look like ours.

    Newlines are shown as `\n`; of a text of more than 2,000 characters the middle is left out.
    """
    text = clean(text).replace("\n", "\\n")
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_BEGIN]} … [{len(text) - 2 * _BEGIN} characters] … {text[-_BEGIN:]}"


def cell(value: object) -> str:
    """One table cell: `clean`, on one line, without tabs."""
    return " ".join(clean(str(value)).split("\n")).replace("\t", " ")
