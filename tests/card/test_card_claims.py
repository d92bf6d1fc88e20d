"""The rule the tool exists for: a card never shows another checkpoint's number as its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from card_builders import (
    OTHER_PROTOCOL,
    TEMPLATES,
    WEIGHTS,
    comparison,
    evaluation,
    make_card,
    measured,
    reported,
)
from card_families import ARMS, agent_family, airline_adapter
from hypothesis import given, settings
from hypothesis import strategies as st

from hubtools.card.blocks import find_blocks
from hubtools.card.front_matter import parse
from hubtools.card.model import CardInput
from hubtools.card.render import render_card
from hubtools.card.rules import possible_fraction
from hubtools.card.text import numbers_in
from hubtools.facts import FactSet


def text_of(card: CardInput) -> str:
    return render_card(card, (TEMPLATES,))


def block(text: str, name: str) -> str:
    return find_blocks(text)[name].text


def of_member(member: str, **changes: object) -> CardInput:
    repo = f"demo/smol-{member.replace('/', '-')}"
    return make_card(member=member, repo=repo, weights=WEIGHTS[member], **changes)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(1, 63), min_size=4, max_size=4, unique=True))
def test_every_number_stays_with_its_checkpoint(counts: list[int]) -> None:
    members = ("base", *WEIGHTS)
    facts = FactSet(
        tuple(
            fact
            for member, k in zip(members, counts, strict=True)
            for fact in evaluation(member, k, k / 64)
        )
    )
    shown = {member: f"{k / 64:.3f} ({k}/64)" for member, k in zip(members, counts, strict=True)}
    for member in WEIGHTS:
        text = text_of(of_member(member, facts=facts))
        results, sisters = block(text, "results"), block(text, "sisters")
        for other, value in shown.items():
            here = other in (member, "base")
            assert (value in results) == here
            assert (value in sisters) != here
            row = next(line for line in (results + sisters).splitlines() if value in line)
            if here:
                assert row.startswith("| **this checkpoint**" if other == member else "| base")
            else:
                assert f"smol-{other.replace('/', '-')}" in row
        index = parse(text)[0]["model-index"][0]["results"]
        assert [m["value"] for m in index[0]["metrics"]] == [
            round(float(shown[member].split()[0]), 3)
        ] * 2


def test_a_value_of_other_weights_is_not_shown_at_all(card: Callable[..., CardInput]) -> None:
    stale = measured("em", "plain/s4", 0.5, k=32, weights="f" * 64)
    sister = measured("em", "plain/s8", 0.75, k=48, weights="f" * 64)
    text = text_of(card(facts=FactSet((stale, sister))))
    assert "0.500" not in text
    assert "0.750" not in text
    assert "**Not evaluated**" in text


def test_a_checkpoint_without_values_says_so(card: Callable[..., CardInput]) -> None:
    text = text_of(card())
    assert "**Not evaluated**: no value of this checkpoint was measured or reported." in text
    assert "model-index" not in text


def test_base_stands_beside_even_when_it_was_not_measured(card: Callable[..., CardInput]) -> None:
    text = text_of(card(facts=FactSet(evaluation("plain/s4", 22, 0.43))))
    assert "| base (`demo/base`) | not measured | not measured | — |" in block(text, "results")


@pytest.mark.parametrize(("noise", "words"), [(True, "no difference"), (False, "a difference")])
def test_comparisons_are_worded_from_this_side(
    card: Callable[..., CardInput], noise: bool, words: str
) -> None:
    mine = card(comparisons=(comparison("em", "plain/s8", "plain/s4", 0.1, noise=noise),))
    said = block(text_of(mine), "sisters")
    low, high = ("-0.180", "-0.020") if noise else ("-0.110", "-0.090")
    assert f": -0.100, 95 % interval {low} to {high} (paired bootstrap, n = 64," in said
    assert f"**{words} beyond noise**" in said
    one = "No sister differs from this checkpoint beyond noise (1 compared, EM)."
    assert (one in said) == noise
    assert ("<details>" in said) == noise


def test_what_is_noise_is_folded_and_what_is_not_stands_open(
    card: Callable[..., CardInput],
) -> None:
    rows = (
        comparison("em", "plain/s4", "base", 0.3, noise=False),
        comparison("em", "plain/s4", "plain/s8", 0.125, noise=False),
        comparison("em", "plain/s4", "terse/s4", 0.031),
        comparison("f1", "plain/s4", "terse/s4", 0.047),
    )
    said = block(text_of(card(comparisons=rows)), "sisters")
    opened, folded = said.split("<details><summary>")
    assert "Compared with 2 of the sisters (EM and F1), beyond noise:\n\n- EM, this" in opened
    assert "+0.125" in opened
    assert folded.startswith("Comparisons without a difference beyond noise: 2</summary>\n\n- EM")
    assert "+0.031" in folded
    assert "+0.047" in folded
    assert "+0.300" not in said


def test_a_family_of_one_is_not_called_a_family(card: Callable[..., CardInput]) -> None:
    mine = card()
    alone = replace(mine, members=mine.members[:1])
    said = block(text_of(alone), "identity")
    assert "| Optimizer step | 4 |" in said
    assert "Family" not in said
    assert "arm" not in said
    unknown = replace(alone.members[0], optimizer_step=None)
    assert "tep" not in block(text_of(replace(alone, members=(unknown,))), "identity")
    assert "| Family | smol, arm `plain` |" in block(text_of(mine), "identity")


def test_comparisons_between_others_are_left_to_their_cards(
    card: Callable[..., CardInput],
) -> None:
    text = text_of(card(comparisons=(comparison("em", "plain/s8", "terse/s4", 0.123),)))
    assert "0.123" not in text


def test_reported_values_are_marked_and_stay_out_of_metadata(
    card: Callable[..., CardInput],
) -> None:
    fact = reported("em", "plain/s4", 0.30, "the paper: “EM 0.30”")
    text = text_of(card(facts=FactSet((fact,))))
    results = block(text, "results")
    assert "nothing in this table was measured for this card" in results
    assert "| 0.30 | not stated |" in results
    assert "- Reported in the paper: “EM 0.30”" in results
    assert "model-index" not in text


def test_two_protocols_are_two_tables_with_their_differences(
    card: Callable[..., CardInput],
) -> None:
    facts = (
        *evaluation("plain/s4", 22, 0.43),
        measured("em", "plain/s4", 0.25, k=16, protocol=OTHER_PROTOCOL),
    )
    results = block(text_of(card(facts=FactSet(facts))), "results")
    tables = results.split("| Checkpoint |")
    assert len(tables) == 3
    assert "0.344" in tables[1]
    assert "0.344" not in tables[2]
    assert "Not comparable with the table of protocol `9f8e7d6c`" in tables[2]


@pytest.mark.parametrize(
    "member", [f"{arm}/{step}" for arm, steps in ARMS.items() for step in steps]
)
def test_published_family_gives_its_one_figure_to_its_one_checkpoint(member: str) -> None:
    text = text_of(agent_family(member))
    results = block(text, "results")
    assert ("0.344" in results) == (member == "r2e/s100")
    assert ("**Not evaluated**" in results) == (member != "r2e/s100")
    assert "model-index" not in text
    if member != "r2e/s100":
        rows = [line for line in block(text, "sisters").splitlines() if "0.344" in line]
        assert rows[0].startswith("| [wenyii/dt-4bT-r2e-s100]")
    nudge = next(part for part in text.split("### ") if "| 0.302 | 0.389 |" in part)
    assert "0.344" not in nudge
    assert "Not comparable with the table of protocol" in nudge


def test_published_family_derives_what_each_step_has_seen() -> None:
    said = block(text_of(agent_family("r2e/s50")), "training")
    assert "Derived: 50 steps × 16 = 800 of 3500 trajectories (0.23 epochs)." in said


def test_published_adapter_does_not_take_over_what_came_after_it() -> None:
    text = text_of(airline_adapter())
    results = block(text, "results")
    assert "0.275 and 0.375 (2 samples of the same checkpoint)" in results
    assert not {"0.5625", "0.55", "0.556", "0.405", "0.20"} & set(numbers_in(results))
    others = block(text, "sisters")
    rows = [line for line in others.splitlines() if "0.5625" in line and line.startswith("|")]
    assert rows[0].startswith("| another checkpoint: after GRPO from this adapter, seed 42")
    separate = next(part for part in others.split("### ") if "| 0.405 |" in part)
    assert "user simulator: llama-3.3-70b there, a self-hosted 7B model here" in separate
    assert "not verified which weights it belongs to" in separate
    assert "model-index" not in text
    assert "| agent | `deepseek-chat` | `deepseek-v4-flash` | 1156/1156 |" in block(text, "teacher")


@pytest.mark.parametrize(
    ("shown", "n", "possible"),
    [("0.275", 80, True), ("0.276", 80, False), ("0.30", 480, None), ("0.5", 3, False)],
)
def test_granularity(shown: str, n: int, possible: bool | None) -> None:
    assert possible_fraction(shown, n) is possible
