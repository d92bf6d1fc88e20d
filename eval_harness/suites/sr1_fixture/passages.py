"""The corpus: short texts on countries, currencies, languages, elements and Python."""

from __future__ import annotations

import builtins
import http
from collections.abc import Iterator
from types import BuiltinFunctionType
from typing import Any

_WORDS = 90
_CHUNKS = 2
_LISTED = 24

Passage = tuple[str, str]
"""Title and text."""


def passages() -> Iterator[Passage]:
    """All of them, in the order of the corpus."""
    yield from _countries()
    yield from _subdivisions()
    yield from _currencies()
    yield from _languages()
    yield from _scripts()
    yield from _elements()
    yield from _exceptions()
    yield from _statuses()
    yield from _functions()
    yield from _topics()


def _countries() -> Iterator[Passage]:
    import pycountry

    for country in pycountry.countries:
        official = getattr(country, "official_name", country.name)
        yield (
            country.name,
            f"The official name of {country.name} is {official}. In ISO 3166-1 its two-letter code"
            f" is {country.alpha_2}, its three-letter code is {country.alpha_3} and its numeric"
            f" code is {country.numeric}.",
        )


def _subdivisions() -> Iterator[Passage]:
    import pycountry

    for country in pycountry.countries:
        found = sorted(
            pycountry.subdivisions.get(country_code=country.alpha_2) or (), key=lambda s: s.code
        )
        if found:
            listed = "; ".join(f"{part.name} ({part.type.lower()})" for part in found[:_LISTED])
            yield f"Subdivisions of {country.name}", f"In {country.name} there are: {listed}."


def _currencies() -> Iterator[Passage]:
    import pycountry

    for money in pycountry.currencies:
        yield (
            money.name,
            f"{money.name} is a currency. In ISO 4217 its code is {money.alpha_3} and its numeric"
            f" code is {money.numeric}.",
        )


def _languages() -> Iterator[Passage]:
    import pycountry

    for language in pycountry.languages:
        if hasattr(language, "alpha_2"):
            yield (
                f"{language.name} language",
                f"The language {language.name} has the two-letter code {language.alpha_2} of"
                f" ISO 639-1 and the three-letter code {language.alpha_3} of ISO 639-3.",
            )


def _scripts() -> Iterator[Passage]:
    import pycountry

    for script in pycountry.scripts:
        yield (
            f"{script.name} script",
            f"The script {script.name} has the code {script.alpha_4} and the number"
            f" {script.numeric} of ISO 15924.",
        )


def _elements() -> Iterator[Passage]:
    import periodictable

    for element in periodictable.elements:
        if element.number:
            yield (
                element.name.capitalize(),
                f"The chemical element {element.name} has the symbol {element.symbol} and the"
                f" atomic number {element.number}. Its standard atomic mass is {element.mass:g}.",
            )


def _exceptions() -> Iterator[Passage]:
    for name, kind in sorted(vars(builtins).items()):
        if isinstance(kind, type) and issubclass(kind, BaseException) and kind.__name__ == name:
            base = kind.__base__
            text = f"{name} is an exception of Python. Its base class is {base and base.__name__}."
            yield name, f"{text} {_first(kind)}"


def _statuses() -> Iterator[Passage]:
    for status in http.HTTPStatus:
        text = f"The HTTP status {status.value} has the reason phrase {status.phrase}."
        yield f"HTTP {status.value}", f"{text} {status.description}".strip()


def _functions() -> Iterator[Passage]:
    for name, value in sorted(vars(builtins).items()):
        if isinstance(value, BuiltinFunctionType) and not name.startswith("_"):
            yield f"{name}()", f"{name} is a built-in function of Python. {_first(value)}"


def _topics() -> Iterator[Passage]:
    import pydoc_data.topics

    for topic, text in sorted(pydoc_data.topics.topics.items()):
        words = text.split()
        for chunk in range(min(_CHUNKS, -(-len(words) // _WORDS))):
            yield f"Python: {topic}", " ".join(words[chunk * _WORDS : (chunk + 1) * _WORDS])


def _first(value: Any) -> str:
    """The first paragraph of a docstring."""
    return " ".join((value.__doc__ or "").strip().partition("\n\n")[0].split())
