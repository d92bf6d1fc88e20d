"""Make `items.jsonl` again: `python -m eval_harness.suites.short_qa.build [--check]`.

Every answer is read from pycountry, periodictable or Python itself, so that anyone can check it.
Only entries that have been stable over many versions of those packages are used.
"""

from __future__ import annotations

import argparse
import builtins
import http
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ITEMS = Path(__file__).with_name("items.jsonl")
SEED = 20260101

COUNTRIES = (
    *("NO", "FR", "BR", "BG", "EG", "PE", "IN", "KE", "IT", "SE", "MX", "GR", "PT", "SK", "AR"),
    *("PL", "FI", "DK", "CL", "MA", "TH", "ID", "NG", "AT", "EE", "ES", "UY", "CO", "GH", "CU"),
)
ELEMENTS = (
    *("He", "Li", "C", "N", "O", "Ne", "Na", "Mg", "Si", "P", "Cl", "Ar", "K", "Ca", "Ti", "Cr"),
    *("Fe", "Co", "Ni", "Cu", "Zn", "Ag", "Sn", "I", "W", "Pt", "Au", "Hg", "Pb", "U"),
)
EXCEPTIONS = (
    *("KeyError", "IndexError", "ZeroDivisionError", "OverflowError", "FileNotFoundError"),
    *("PermissionError", "UnicodeDecodeError", "RecursionError", "NotImplementedError"),
    *("ModuleNotFoundError", "FileExistsError", "IndentationError"),
)
STATUSES = (200, 201, 202, 204, 206, 304, 401, 402, 403, 404, 409, 410, 429, 500, 501, 503)

Record = dict[str, Any]


def build() -> list[Record]:
    """All items, in the order in which they are asked."""
    draw = random.Random(SEED)
    return [
        *_open_book("country", 24, COUNTRIES, 2, _country, draw),
        *_open_book("element", 16, ELEMENTS, 3, _element, draw),
        *_open_book("exception", 8, EXCEPTIONS, 2, _exception, draw),
        *_open_book("http", 8, STATUSES, 3, _status, draw),
        *_closed_book(draw),
    ]


def _open_book(
    category: str,
    count: int,
    pool: Sequence[Any],
    records: int,
    describe: Callable[[Any], tuple[str, list[Record]]],
    draw: random.Random,
) -> Iterator[Record]:
    """`count` items: a passage about some entries of `pool`, and a question about one of them."""
    targets = draw.sample(pool, count)
    for index, target in enumerate(targets):
        others = draw.sample([entry for entry in pool if entry != target], records - 1)
        shown = draw.sample([target, *others], records)
        questions = describe(target)[1]
        yield {
            "id": f"{category}-{index + 1:02d}",
            "category": category,
            "context": " ".join(describe(entry)[0] for entry in shown),
            **questions[index % len(questions)],
        }


def _closed_book(draw: random.Random) -> Iterator[Record]:
    for index, key in enumerate(draw.sample(ELEMENTS, 8)):
        questions = _element(key)[1]
        yield {
            "id": f"closed-{index + 1:02d}",
            "category": "closed",
            "context": "",
            **questions[index % len(questions)],
        }


def _country(key: str) -> tuple[str, list[Record]]:
    import pycountry

    country = pycountry.countries.get(alpha_2=key)
    name, official, code = country.name, country.official_name, country.alpha_3
    text = f"The official name of {name} is {official}. The three-letter code of {name} is {code}."
    ask = partial(_ask, "pycountry", key)
    return text, [
        ask("official_name", f"What is the official name of {name}?", official),
        ask("alpha_3", f"What is the three-letter code of {name}?", code),
        ask("name", f"Which country has the three-letter code {code}?", name),
    ]


def _element(key: str) -> tuple[str, list[Record]]:
    import periodictable

    element = periodictable.elements.symbol(key)
    name, number = element.name, element.number
    text = f"The element {name} has the symbol {key} and the atomic number {number}."
    ask = partial(_ask, "periodictable", key)
    return text, [
        ask("symbol", f"What is the chemical symbol of {name}?", key),
        ask("name", f"Which element has the symbol {key}?", name),
        ask("number", f"What is the atomic number of {name}?", number),
        ask("name", f"Which element has the atomic number {number}?", name),
    ]


def _exception(key: str) -> tuple[str, list[Record]]:
    kind = getattr(builtins, key)
    base, meaning = kind.__base__.__name__, kind.__doc__.rstrip(".")
    ask = partial(_ask, "python:builtins", key)
    return f"The base class of {key} is {base}. Its meaning is: {meaning}.", [
        ask("__name__", f"Which exception means: {meaning}?", key),
        ask("__base__", f"What is the base class of {key}?", base),
    ]


def _status(key: int) -> tuple[str, list[Record]]:
    phrase = http.HTTPStatus(key).phrase
    ask = partial(_ask, "python:http.HTTPStatus", str(key))
    return f"The reason phrase of HTTP status {key} is {phrase}.", [
        ask("value", f'Which HTTP status has the reason phrase "{phrase}"?', key),
        ask("phrase", f"What is the reason phrase of HTTP status {key}?", phrase),
    ]


def _ask(package: str, key: object, field: str, question: str, answer: object) -> Record:
    source = {"package": package, "key": str(key), "field": field}
    return {"question": question, "answers": [str(answer)], "source": source}


def rendered() -> str:
    """The text of `items.jsonl`: one JSON object a line."""
    return "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in build())


def main() -> int:
    """Write the file, or with `--check` say by the exit status whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when it differs")
    if parser.parse_args().check:
        return int(ITEMS.read_text(encoding="utf-8") != rendered())
    ITEMS.write_text(rendered(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
