"""Repo-name patterns such as `{family}-{arm}-{step}`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hubtools.errors import UsageError

_FIELD = re.compile(r"\{([^{}]*)\}")
_NAME_BYTES, _PATH_BYTES = 255, 2048  # what file systems allow, with room for the project's folder


def path_problem(path: str) -> str | None:
    """Why no file system has a place for this path, or None."""
    if "\0" in path:
        return "holds a NUL character"
    if any(len(part.encode()) > _NAME_BYTES for part in path.split("/")):
        return f"has a part of more than {_NAME_BYTES} bytes"
    if len(path.encode()) > _PATH_BYTES:
        return f"has more than {_PATH_BYTES} bytes"
    return None


def expand(pattern: str, words: Mapping[str, str], where: str) -> str:
    """Fill a pattern's `{fields}`.

    Raises:
        UsageError: HT007 when a field is unknown, or has no value for this member, or the result
            can be neither a name nor a path.
    """

    def fill(found: re.Match[str]) -> str:
        value = words.get(found[1], "")
        if not value:
            known = ", ".join("{" + word + "}" for word in words)
            raise UsageError(
                "HT007",
                f"the pattern {pattern!r} needs {found[0]}, which has no value here",
                where=where,
                detail=(f"fields: {known}",),
                next=f"correct the pattern, or declare {found[1]} in the manifest",
            )
        return value

    filled = _FIELD.sub(fill, pattern)
    if problem := path_problem(filled):
        raise UsageError(
            "HT007",
            f"the pattern {pattern[:80]!r} gives something that {problem}",
            where=where,
            next=f"correct the pattern at {where}",
        )
    return filled


def check_pattern(pattern: str, where: str, *, members: int) -> None:
    """A pattern for several members must tell them apart and parse back.

    Raises:
        UsageError: HT007.
    """
    fields = _FIELD.findall(pattern)
    if members > 1 and not {"arm", "step"} <= set(fields):
        raise UsageError(
            "HT007",
            f"the name pattern {pattern!r} must hold {{arm}} and {{step}}: there are {members}"
            " members",
            where=where,
            next='for example name = "{family}-{arm}-{step}"',
        )
    if re.search(r"\}\{", pattern):
        raise UsageError(
            "HT007",
            f"the name pattern {pattern!r} has two fields side by side, so a name would not"
            " parse back",
            where=where,
            next="put a character such as - between the fields",
        )
