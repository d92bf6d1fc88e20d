"""What the teacher is asked: short questions about entries that the evaluation never mentions.

Same kind of source as the suite `short_qa` (so that training on the answers can matter), other
entries: `overlap` proves it, and the demo refuses to train when it finds something.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from eval_harness.suites import short_qa

COUNTRIES = (
    *("DE", "CH", "IS", "NP", "JO", "LV", "HR", "CZ", "TN", "ZM", "LK", "PH"),
    *("BE", "RS", "NL", "LT", "MT", "KW", "LB", "MW", "SN", "UG", "SI", "AO"),
)
ELEMENTS = (
    *("H", "B", "F", "Al", "S", "Sc", "V", "Mn", "Ga", "Ge", "As", "Se"),
    *("Br", "Kr", "Zr", "Mo", "Pd", "Cd", "In", "Sb", "Xe", "Cs", "Ba", "Ce"),
)
EVALUATED = Path(short_qa.__file__).with_name("items.jsonl")

INSTRUCTION = "Answer in one short sentence."
"""What the teacher is told. The student is not: that is what it can learn."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question with the sentence that answers it.

    Args:
        arm: which arm trains on the answer.
        entry: `package:key` of what it is about.
    """

    arm: str
    entry: str
    fact: str
    question: str
    answer: str

    def prompt(self) -> str:
        """What a user would ask."""
        return f"{self.fact}\n\n{self.question}"


def questions() -> list[Question]:
    """All of them, in the order in which they are asked: one per entry, kinds taking turns."""
    found = []
    for keys, describe in ((COUNTRIES, _country), (ELEMENTS, _element)):
        for turn, key in enumerate(keys):
            kinds = describe(key)
            found.append(kinds[turn % len(kinds)])
    return found


def _country(key: str) -> list[Question]:
    import pycountry

    country = pycountry.countries.get(alpha_2=key)
    name, official, code = country.name, country.official_name, country.alpha_3
    fact = f"{name} is officially called {official} and has the code {code}."
    ask = partial(Question, "country", f"pycountry:{key}", fact)
    return [
        ask(f"What is {name} officially called?", official),
        ask(f"Which code does {name} have?", code),
        ask(f"Which country has the code {code}?", name),
    ]


def _element(key: str) -> list[Question]:
    import periodictable

    element = periodictable.elements.symbol(key)
    name, number = element.name, element.number
    fact = f"The symbol of {name} is {key}; its atomic number is {number}."
    ask = partial(Question, "element", f"periodictable:{key}", fact)
    return [
        ask(f"What is the symbol of {name}?", key),
        ask(f"What is the atomic number of {name}?", str(number)),
        ask(f"Which element has the symbol {key}?", name),
    ]


def evaluated_items() -> list[dict[str, Any]]:
    """The items of the suite that the checkpoints are evaluated on."""
    return [json.loads(line) for line in EVALUATED.read_text(encoding="utf-8").splitlines()]


def overlap(asked: Iterable[Question], items: Iterable[Mapping[str, Any]]) -> list[str]:
    """What the questions share with evaluation items; empty when they share nothing.

    An entry, a question, an answer or a sentence of a passage counts as shared.
    """
    items = list(items)
    entries = {f"{item['source']['package']}:{item['source']['key']}" for item in items}
    answers = {str(answer).casefold() for item in items for answer in item["answers"]}
    texts = [f"{item['context']} {item['question']}".casefold() for item in items]
    found = []
    for question in asked:
        shared = {question.entry} & entries
        parts = (question.question, question.fact)
        shared |= {part for part in parts if any(part.casefold() in text for text in texts)}
        if question.answer.casefold() in answers:
            shared.add(question.answer)
        found += [f"{question.entry}: {what}" for what in sorted(shared)]
    return found
