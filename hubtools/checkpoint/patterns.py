"""Regular expressions that stand in files of others: matched as PEFT does, for a moment at most."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from hubtools.errors import CheckError

_SECONDS = 0.5
_LONGEST = 20_000
_REPEATS = frozenset("*+?{")


def fits(pattern: str, name: str, file: Path, *, below: bool = False) -> bool:
    """Whether a pattern is all of `name`, or with `below` the end of it after a dot.

    Args:
        pattern: as it stands in `file`.
        name: path of a module.
        file: for the message.
        below: as in rank_pattern and alpha_pattern.

    Raises:
        CheckError: HT110 no regular expression, or one that takes forever on this name.
    """
    compiled = _compiled(pattern, below, file)
    if not _REPEATS & set(pattern):
        return compiled.fullmatch(name) is not None
    import regex  # the same language with a limit of time, which `re` does not have

    try:
        return regex.fullmatch(compiled.pattern, name, timeout=_SECONDS) is not None
    except TimeoutError as error:
        raise _unusable(file, pattern, f"takes more than {_SECONDS} s on one name") from error
    except regex.error as error:
        raise _unusable(file, pattern, f"is no regular expression ({error})") from error


def require_pattern(pattern: str, file: Path, *, below: bool = False) -> None:
    """Refuse what `fits` cannot use.

    Raises:
        CheckError: HT110.
    """
    _compiled(pattern, below, file)


@lru_cache(maxsize=256)
def _compiled(pattern: str, below: bool, file: Path) -> re.Pattern[str]:
    if len(pattern) > _LONGEST:
        raise _unusable(file, pattern, f"has {len(pattern)} characters")
    try:
        return re.compile(rf"(.*\.)?({pattern})" if below else pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise _unusable(file, pattern, f"is no regular expression ({error})") from error


def _unusable(file: Path, pattern: str, why: str) -> CheckError:
    shown = pattern if len(pattern) < 80 else f"{pattern[:77]}..."
    return CheckError(
        "HT110",
        f"cannot merge this adapter: the pattern {shown!r} {why}",
        where=str(file),
        detail=("Nothing was written.",),
        next="correct the pattern in adapter_config.json, as it was in training",
    )
