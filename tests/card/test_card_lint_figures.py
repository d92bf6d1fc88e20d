"""HT015: a figure that reads as a result needs a fact; what trains or samples does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from card_builders import SUITE, TEMPLATES, comparison, evaluation, make_card, measured, reported
from card_families import ARMS, agent_family, airline_adapter

from hubtools.card.lint import lint_card
from hubtools.card.model import CardInput
from hubtools.card.render import render_card
from hubtools.errors import Finding
from hubtools.facts import FactSet

FACTS = FactSet(
    (
        *evaluation("base", 20, 0.4),
        *evaluation("plain/s4", 22, 0.4312),
        replace(
            reported("", "family", 51, "the paper: “51% of the dialogues”", protocol=""),
            id="data.write_share",
            unit="%",
        ),
    )
)


def figures(text: str, **changes: object) -> list[Finding]:
    rows = (comparison("em", "plain/s4", "base", 0.03125),)
    suites = (replace(SUITE, protocol={"sampling": {"temperature": 0.6}}),)
    given = {"facts": FACTS, "comparisons": rows, "suites": suites, **changes}
    card = make_card(prose={"training": text}, **given)
    return [f for f in lint_card(render_card(card, (TEMPLATES,)), card) if f.id == "HT015"]


def test_a_made_up_figure_is_named_with_file_and_line() -> None:
    found = figures("Fine words.\n\n# Data\n\nAll of it helped:\nit has 93.2 % on MyBench.")
    assert [(f.level, f.where, f.member) for f in found] == [
        ("warning", "prose/training.md:6", "plain/s4")
    ]
    assert found[0].message == "93.2 % reads as a result, but no fact of this card gives it"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("EM rose to 0.61.", ["0.61"]),
        ("An F1 score of 0.9 and more.", ["0.9"]),
        ("It solves 88% of MyBench.", ["88%"]),
        ("pass@1 of 0.77 and pass@8 of 0.91", ["0.77", "0.91"]),
        ("The win rate is 71.4.", ["71.4"]),
        ("- lr 0.1\n- accuracy 0.99", ["0.99"]),
        ("| | EM |\n|---|---|\n| ours | 0.99 |", ["0.99"]),
        ("Accuracy at temperature 0.7 is 0.93.", ["0.93"]),
        ("EM 0.35, where 0.344 was measured.", ["0.35"]),
        ("EM is 44 % here.", ["44 %"]),
    ],
)
def test_results_without_a_fact(text: str, named: list[str]) -> None:
    assert [f.message.partition(" reads")[0] for f in figures(text)] == named


@pytest.mark.parametrize(
    "text",
    [
        "EM is 0.344, or 34 %, against 31.2 % (0.3125) of the base; F1 0.43 or 0.431.",
        "EM rises by 0.031, with an interval of -0.049 to 0.111.",
        "In 51 % of the dialogues a tool is called.",
        "The score was taken at temperature 0.6.",
        "Learning rate 0.1, warmup ratio 0.03, dropout of 0.05; 3 % warmup, weight decay 0.01.",
        "Scores at temperatures of 0.5, 0.7 and 0.9 are alike; top-p 0.95.",
        "The 95 % confidence interval of EM; a 95% CI.",
        "Scored with transformers 5.24 and version 2.13 of torch, p < 0.05, on 1.5 B parameters.",
        "A tenth, 10 % of the training data, and 0.5 epochs; then EM was looked at.",
        "It took 2.5 hours. The score came later.",
        "See [EM](https://example.org/em-0.99/0.98).",
        "Qwen2.5-7B and llama-3.3-70b have an accuracy of their own; score.py 1.2.3.",
    ],
)
def test_facts_settings_and_other_numbers_are_no_findings(text: str) -> None:
    assert figures(text) == []


def test_a_value_of_other_weights_founds_nothing() -> None:
    stale = measured("em", "plain/s4", 0.75, k=48, weights="f" * 64)
    assert len(figures("EM is 0.750.", facts=FactSet((stale,)), comparisons=())) == 1


def test_text_added_outside_the_blocks_is_read_too() -> None:
    card = make_card(facts=FACTS)
    text = render_card(card, (TEMPLATES,)) + "\nIt reaches an\naccuracy of 0.97.\n"
    found = lint_card(text, card)
    assert [(f.id, f.where) for f in found] == [("HT015", f"README.md:{text.count(chr(10))}")]


@pytest.mark.parametrize(
    "card",
    [
        *(agent_family(f"{arm}/{step}") for arm, steps in ARMS.items() for step in steps),
        airline_adapter(),
    ],
    ids=lambda card: card.member,
)
def test_published_prose_says_reported_figures_only(card: CardInput) -> None:
    assert "HT015" not in {f.id for f in lint_card(render_card(card, (TEMPLATES,)), card)}
