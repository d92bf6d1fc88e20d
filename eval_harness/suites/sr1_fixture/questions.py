"""The questions: three categories need one passage, four need what one passage says of another."""

from __future__ import annotations

import builtins
import http
from collections.abc import Callable, Iterator
from typing import Any

NAMES = ("NO", "PE", "KE", "TH", "EE", "GH")
MONEY = ("SE", "IN", "HU", "JP", "CZ", "CL")
PLACES = ("NO-03", "IT-25", "PL-12", "KE-10", "FI-18", "CL-AN")
LANGUAGES = ("eu", "cy", "mi")
ELEMENTS = ("Ti", "Sn", "Hg")
BEFORE = ("Fe", "Cu", "Ne", "Kr", "Ag", "Pt")
EXCEPTIONS = ("IndexError", "PermissionError", "NotImplementedError")
STATUSES = (404, 410, 503)
DEEP = (
    *("UnicodeDecodeError", "TabError", "ConnectionResetError"),
    *("BrokenPipeError", "UnicodeEncodeError", "ConnectionRefusedError"),
)

Question = tuple[str, list[str], dict[str, str]]
"""Question, accepted answers, where the answer comes from."""


def questions() -> Iterator[tuple[str, Question]]:
    """Category and question, in the order in which they are asked."""
    for category, made in _CATEGORIES.items():
        for question in made():
            yield category, question


def _names() -> Iterator[Question]:
    import pycountry

    for index, key in enumerate(NAMES):
        country = pycountry.countries.get(alpha_2=key)
        if index % 2:
            text, field = f"What is the official name of {country.name}?", "official_name"
        else:
            text, field = f"What is the three-letter code of {country.name}?", "alpha_3"
        yield text, [getattr(country, field)], _source("pycountry.countries", key, field)


def _words() -> Iterator[Question]:
    import periodictable
    import pycountry

    for key in LANGUAGES:
        language = pycountry.languages.get(alpha_2=key)
        text = f'Which language has the two-letter code "{key}"?'
        yield text, [language.name], _source("pycountry.languages", key, "name")
    for key in ELEMENTS:
        element = periodictable.elements.symbol(key)
        text = f"What is the atomic number of {element.name}?"
        yield text, [str(element.number)], _source("periodictable", key, "number")


def _python() -> Iterator[Question]:
    for name in EXCEPTIONS:
        text = f"What is the base class of {name} in Python?"
        answer = getattr(builtins, name).__base__.__name__
        yield text, [answer], _source("python:builtins", name, "__base__")
    for status in STATUSES:
        text = f"What is the reason phrase of the HTTP status {status}?"
        answer = http.HTTPStatus(status).phrase
        yield text, [answer], _source("python:http.HTTPStatus", str(status), "phrase")


def _money() -> Iterator[Question]:
    import pycountry

    for key in MONEY:
        country = pycountry.countries.get(alpha_2=key)
        money = pycountry.currencies.get(numeric=country.numeric)
        text = f"Which currency has the same numeric code as the country {country.name}?"
        answers = [money.name, money.alpha_3]
        yield text, answers, _source("pycountry.currencies", country.numeric, "name")


def _next_element() -> Iterator[Question]:
    import periodictable

    for key in BEFORE:
        element = periodictable.elements.symbol(key)
        after = periodictable.elements[element.number + 1]
        text = f"Which element has an atomic number that is one higher than that of {element.name}?"
        yield text, [after.name, after.symbol], _source("periodictable", after.symbol, "name")


def _places() -> Iterator[Question]:
    import pycountry

    for key in PLACES:
        place = pycountry.subdivisions.get(code=key)
        country = pycountry.countries.get(alpha_2=place.country_code)
        text = f"What is the three-letter code of the country of which {place.name} is a part?"
        yield text, [country.alpha_3], _source("pycountry.subdivisions", key, "country_code")


def _grandparents() -> Iterator[Question]:
    for name in DEEP:
        text = f"In Python, what is the base class of the base class of {name}?"
        answer = getattr(builtins, name).__base__.__base__.__name__
        yield text, [answer], _source("python:builtins", name, "__base__.__base__")


def _source(package: str, key: str, field: str) -> dict[str, str]:
    return {"package": package, "key": key, "field": field}


_CATEGORIES: dict[str, Callable[[], Iterator[Any]]] = {
    "nq-fixture": _names,
    "triviaqa-fixture": _words,
    "popqa-fixture": _python,
    "hotpotqa-fixture": _money,
    "2wikimultihopqa-fixture": _next_element,
    "musique-fixture": _places,
    "bamboogle-fixture": _grandparents,
}
