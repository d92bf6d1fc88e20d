"""Macro means, parts and tiers of a suite on a card."""

from __future__ import annotations

from dataclasses import replace

from card_builders import make_card, measured

from hubtools.card.front_matter import model_index
from hubtools.card.lint_claims import fact_findings
from hubtools.card.rules import suite_metric
from hubtools.card.tables import evaluations
from hubtools.facts import Fact, FactSet


def renamed(name: str, value: float, **more: object) -> Fact:
    fact = measured("em", "plain/s4", value)
    return replace(fact, id=f"eval.short_qa.{name}", k=None, **more)


def test_a_macro_mean_is_a_column_of_its_own_and_its_parts_are_none() -> None:
    macro, part = renamed("macro.em", 0.4571), renamed("nq.em", 0.3)
    tiers = renamed("tiers.1", 12)
    micro = measured("em", "plain/s4", 0.5)
    card = make_card(facts=FactSet((macro, micro, part, tiers)))
    [table] = evaluations(card).measured
    assert table.columns == ("Checkpoint", "EM, macro", "EM", "n")
    assert suite_metric(tiers) is None
    [result] = model_index(card)
    assert [(m["name"], m["value"]) for m in result["metrics"]] == [
        ("EM (macro)", 0.457),
        ("EM", 0.5),
    ]


def test_no_k_is_looked_for_behind_a_mean_over_categories_or_of_graded_scores() -> None:
    """0.457 of 64 is no fraction, and need not be one."""
    facts = FactSet((renamed("macro.em", 0.4571), renamed("f1_flashrag", 0.4571)))
    assert [found for found in fact_findings(make_card(facts=facts)) if found.id == "HT016"] == []
