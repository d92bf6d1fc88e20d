"""Path patterns of `.gitattributes` and `.gitignore`. Pure.

Supported is what such files in Hub repos use: `*`, `?`, `[...]`, `**`, a leading or inner `/`
(anchored at the root), a trailing `/` (folders) and, for ignoring, `!`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache


@lru_cache(maxsize=512)
def _expression(pattern: str) -> re.Pattern[str]:
    anchored = "/" in pattern.rstrip("/")
    text = pattern.strip("/")
    parts = []
    position = 0
    while position < len(text):
        if text.startswith("**/", position):
            parts.append("(?:.*/)?")
            position += 3
        elif text.startswith("**", position):
            parts.append(".*")
            position += 2
        elif text[position] == "*":
            parts.append("[^/]*")
            position += 1
        elif text[position] == "?":
            parts.append("[^/]")
            position += 1
        elif text[position] == "[" and (end := text.find("]", position + 2)) > 0:
            members = text[position + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            negated = members[0] in "!^"
            parts.append(f"[{'^' if negated else ''}{members[negated:]}]")
            position = end + 1
        else:
            parts.append(re.escape(text[position]))
            position += 1
    below = "/.+" if pattern.endswith("/") else "(?:/.*)?"
    return re.compile(("" if anchored else "(?:.*/)?") + "".join(parts) + below, re.DOTALL)


def matches(pattern: str, path: str) -> bool:
    """Whether a path, or a folder it is in, matches one pattern."""
    return _expression(pattern).fullmatch(path) is not None


def is_ignored(path: str, gitignore: str) -> bool:
    """Whether `.gitignore` text leaves this path out; the last matching line decides."""
    ignored = False
    for line in gitignore.splitlines():
        rule = line.strip()
        if not rule or rule.startswith("#"):
            continue
        keep = rule.startswith("!")
        if matches(rule[keep:], path):
            ignored = not keep
    return ignored


def lfs_patterns(gitattributes: str) -> tuple[str, ...]:
    """Patterns that `.gitattributes` text hands to LFS."""
    lines = (line.split() for line in gitattributes.splitlines())
    return tuple(p[0] for p in lines if p and not p[0].startswith("#") and "filter=lfs" in p[1:])


def is_lfs(path: str, patterns: Iterable[str]) -> bool:
    """Whether any of the patterns takes this path."""
    return any(matches(pattern, path) for pattern in patterns)
