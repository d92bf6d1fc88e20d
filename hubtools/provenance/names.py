"""When do two model names mean the same model? (pure)

`gpt-4o` answered by `gpt-4o-2024-08-06` is no alarm, `gemini` answered by `grok` is. Names are
compared without case, spaces and gateway prefixes, with `4.5` spelled `4-5`; a date at the end
makes a name a snapshot.
"""

from __future__ import annotations

import re

_VARIANT = re.compile(r":(free|nitro|floor|extended|online|thinking|beta|exacto|latest)$")
_DATE = re.compile(
    r"(?:-preview)?-(?:\d{4}-\d{2}-\d{2}|\d{8}|\d{6}|\d{4}|\d{2}-\d{2}|00\d)(?:-preview)?$"
)


def canonical(name: str) -> str:
    """A name in the form in which names are compared: `DeepSeek V4 Flash` → `deepseek-v4-flash`."""
    text = re.sub(r"[\s_]+|(?<=\d)\.(?=\d)", "-", name.strip().lower())
    text = re.sub(r"@(\d{8})$", r"-\1", text).partition("@")[0]
    return _VARIANT.sub("", text.removeprefix("models/"))


def same(one: str, other: str) -> bool:
    """Equal names, when a gateway's prefix on one of them (`x-ai/grok-4`, `grok-4`) is ignored."""
    a, b = canonical(one), canonical(other)
    return bool(a and b) and (a == b or a.endswith("/" + b) or b.endswith("/" + a))


def pinned(name: str) -> bool:
    """Whether a name ends in a date or version stamp, so that it cannot move."""
    return bool(_DATE.search(canonical(name)))


def snapshot_of(snapshot: str, name: str) -> bool:
    """Whether `snapshot` is a dated snapshot of the undated `name` (`…-latest` counts)."""
    return pinned(snapshot) and same(
        _DATE.sub("", canonical(snapshot)), canonical(name).removesuffix("-latest")
    )


def is_path(name: str) -> bool:
    """Whether a reported name is a place on somebody's disk, as local servers report."""
    return (
        name.startswith(("/", "./", "../", "~", ".")) or re.match(r"[A-Za-z]:\\", name) is not None
    )


def shown(name: str) -> str:
    """A name as it may be published: of a path only its last part."""
    return "…/" + re.split(r"[/\\]", name.rstrip("/\\"))[-1] if is_path(name) else name
