"""Text that is safe in Markdown, and numbers that do not claim more digits than they have. Pure.

What a template prints is escaped unless it is `Markdown`, text that was made safe (or was written
as Markdown by the author) before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from hubtools.facts import Fact, Source, Spread

_SPECIAL = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])|^(?=[#>+=-])")
_LIST = re.compile(r"^(\d+)([.)])(?=\s|$)")
_NUMBER = re.compile(r"(?<![\w.])(?<!\w-)[+-]?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][+-]?\d+)?(?!\w)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202f\u2066-\u2069\ufeff]+")


class Markdown(str):
    """A string that is Markdown already and is placed as it stands."""

    __slots__ = ()


def escape(value: Any) -> Markdown:
    """One line of text that shows `value`: no markup, HTML, table bar or line break acts."""
    if isinstance(value, Markdown):
        return value
    text = one_line(str(value)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _SPECIAL.sub(lambda match: "\\" + match[0], text)
    return Markdown(_LIST.sub(r"\1\\\2", text))


def one_line(text: str) -> str:
    """Without line breaks and invisible characters, which could end a code span or a cell."""
    return _CONTROL.sub(" ", text).strip()


def cell(value: Any) -> Markdown:
    """Text for a table cell; Markdown is kept, but it cannot end its cell or its row."""
    if isinstance(value, Markdown):
        return Markdown(re.sub(r"(?<!\\)\|", r"\\|", re.sub(r"\s*[\r\n]+\s*", " ", value)))
    return escape(value)


def code(value: Any) -> Markdown:
    """A code span that shows `value`, whatever backticks it holds."""
    text = one_line(str(value))
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return Markdown(f"{fence}{pad}{text}{pad}{fence}")


def fenced(source: str, language: str) -> Markdown:
    """A fenced code block, its fence longer than any inside."""
    longest = max((len(run) for run in re.findall(r"`{3,}", source)), default=2)
    fence = "`" * (longest + 1)
    return Markdown(f"{fence}{language}\n{source.rstrip()}\n{fence}")


def link(label: str, url: str) -> Markdown:
    """An inline link; anything but https is shown as text, so no script can hide in one."""
    if not re.fullmatch(r"https://[^\s()<>\"'`\\]+", url):
        return escape(f"{label} ({url})")
    return Markdown(f"[{escape(label)}]({url})")


def hub_link(repo: str, revision: str = "") -> Markdown:
    """Link to a Hub repo, at one commit when it is known."""
    tail = f"/tree/{revision}" if revision else ""
    return link(repo, f"https://huggingface.co/{repo}{tail}")


def sha8(digest: str) -> str:
    """The first eight hex digits, enough to recognise a digest by eye."""
    return digest[:8]


def named_files(sources: Iterable[Source]) -> Markdown:
    """Each file once, with the start of its digest; a directory has none."""
    files = dict.fromkeys((source.path, source.sha256) for source in sources)
    return Markdown(
        ", ".join(
            Markdown(f"{code(path)} (sha256 {code(sha8(sha))})" if sha else code(path))
            for path, sha in files
        )
    )


def numbers_in(text: str) -> list[str]:
    """The numbers in a text, as they are written there (`0.30`, `1e-5`, `1,156`)."""
    return _NUMBER.findall(text)


def number(token: str) -> float:
    """What a token of `numbers_in` says."""
    return float(token.replace(",", ""))


def as_given(fact: Fact, value: Any) -> str:
    """A reported value with the digits its author wrote: `0.30`, not `0.3`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    for token in numbers_in(fact.source.quote):
        if number(token) == value:
            return token
    return repr(value)


def values_of(fact: Fact) -> tuple[Any, ...]:
    """The value, or the values where the same thing was measured several times."""
    return tuple(fact.value) if isinstance(fact.value, list | tuple) else (fact.value,)


def shown_values(fact: Fact) -> tuple[str, ...]:
    """Values as text: three decimals where we measured, the author's own digits otherwise."""
    if fact.status != "measured":
        return tuple(as_given(fact, value) for value in values_of(fact))
    return tuple(f"{v:.3f}" if isinstance(v, float) else str(v) for v in values_of(fact))


def spread_text(spread: Spread) -> str:
    """A spread with what kind of statement it is, so that no bare plus-minus is ever printed."""
    if spread.kind == "ci":
        return f"{100 * (spread.level or 0):g} % CI {spread.low:.3f} to {spread.high:.3f}"
    if spread.kind == "minmax":
        return f"range {spread.low:.3f} to {spread.high:.3f} of {spread.k}"
    half = (spread.high - spread.low) / 2
    return f"± {half:.3f} ({'SD' if spread.kind == 'sd' else 'SEM'} of {spread.k})"


def value_text(fact: Fact) -> str:
    """The whole cell: value or values, k/n, repeats, spread."""
    unit = "" if fact.unit in ("", "proportion") else f" {fact.unit}"
    shown = shown_values(fact)
    parts = [" and ".join(shown) + unit]
    if fact.k is not None and fact.n:
        parts[0] += f" ({fact.k}/{fact.n})"
    if len(shown) > 1:
        parts[0] += f" ({len(shown)} samples of the same checkpoint)"
    elif fact.repeats and fact.repeats > 1:
        # An interval beside own repeats: they were equal, and chance is that of the questions.
        equal = fact.status == "measured" and fact.spread is not None and fact.spread.kind == "ci"
        said = f"{fact.repeats} equal runs" if equal else f"mean of {fact.repeats} repeats"
        parts[0] += f" ({said})"
    if fact.spread is not None:
        parts.append(spread_text(fact.spread))
    return ", ".join(parts)


def reported_in(quotes: Iterable[str]) -> list[Markdown]:
    """One line a source, with its quotes: `source: “words”` as facts carry them."""
    grouped: dict[str, list[str]] = {}
    for quote in dict.fromkeys(quotes):
        if quote:
            source, mark, words = quote.partition(": “")
            grouped.setdefault(source if mark else "", []).append(f"“{words}" if mark else quote)
    return [
        Markdown(f"Reported{f' in {escape(source)}' if source else ''}: {escape('; '.join(words))}")
        for source, words in grouped.items()
    ]
