"""Values of a suite's files, taken as they stand or refused: none is quietly made into another."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from string import Formatter
from typing import Any

_NAME = re.compile(r"\w[\w.+-]{0,99}", re.ASCII)
_FILLED = ("with_context", "without_context")


def text(value: Any, what: str) -> str:
    """`value`, if it is a text that can be written as UTF-8.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(value, str):
        raise ValueError(f"{what} is {value!r:.60}, not a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} holds half a surrogate pair") from error
    return value


def label(value: Any, what: str, taken: Collection[str] = ()) -> str:
    """A text that can head a column: printable, not blank, without `|`, and not one of `taken`.

    Raises:
        ValueError: it is not.
    """
    name = text(value, what)
    if not name.strip() or not name.isprintable() or "|" in name:
        raise ValueError(f"{what} {name!r:.60} cannot head a column")
    if name in taken:
        raise ValueError(f"{what} cannot be {name!r}: that name is taken")
    return name


def component(value: Any, what: str, taken: Collection[str] = ()) -> str:
    """A text that names one folder: at most 100 ASCII letters, digits and `_.+-`.

    Raises:
        ValueError: it is not.
    """
    name = text(value, what)
    if not _NAME.fullmatch(name) or name in taken:
        raise ValueError(
            f"{what} {name!r:.60} cannot name a folder: up to 100 letters, digits and _.+-,"
            " the first a letter, digit or _"
        )
    return name


def whole(value: Any, what: str, least: int) -> int:
    """A whole number from `least`.

    Raises:
        ValueError: it is not.
    """
    if type(value) is int and value < least:
        raise ValueError(f"{what} {value} is less than {least}")
    if type(value) is not int or value >= 10**9:
        raise ValueError(f"{what} is {value!r:.60}, not a whole number from {least}")
    return value


def number(value: Any, what: str, most: float = 1e9) -> float:
    """A number from 0 to `most`.

    Raises:
        ValueError: it is not.
    """
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not math.isfinite(value) or not 0 <= value <= most:
        raise ValueError(f"{what} is {value!r:.60}, not a number from 0 to {most:g}")
    return float(value)


def texts(value: Any, what: str) -> tuple[str, ...]:
    """A list of texts; whole numbers among them are written out.

    Raises:
        ValueError: it is something else, such as one text, which would be taken letter by letter.
    """
    if not isinstance(value, list | tuple):
        raise ValueError(f"{what} is {value!r:.60}, not a list of texts")
    return tuple(text(str(one) if type(one) is int else one, f"one of {what}") for one in value)


def prompts(table: Mapping[str, Any]) -> dict[str, str]:
    """The `[prompt]` table, whose templates may hold `{question}` and `{context}` and no more.

    Raises:
        ValueError: a template says how a field is to be formatted, or looks inside it.
    """
    found = {key: text(value, f"prompt.{key}") for key, value in table.items()}
    for key in _FILLED:
        for _, name, spec, conversion in Formatter().parse(found.get(key, "")):
            if name is not None and (spec or conversion or not name.isidentifier()):
                raise ValueError(
                    f"prompt.{key} holds {{{name}}} with something in it;"
                    " a brace of the text is written twice: {{ }}"
                )
    return found
