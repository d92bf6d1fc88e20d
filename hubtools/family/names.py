"""Repo-name patterns such as `{family}-{arm}-{step}`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hubtools.errors import UsageError

_FIELD = re.compile(r"\{([^{}]*)\}")


def expand(pattern: str, words: Mapping[str, str], where: str) -> str:
    """Fill a pattern's `{fields}`.

    Raises:
        UsageError: HT007 when a field is unknown, or has no value for this member.
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

    return _FIELD.sub(fill, pattern)


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
