from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_harness.extraction.short_answer import short_answer
from eval_harness.scorers import exact_match, f1_squad, normalise

WORDS = st.lists(st.sampled_from(["the", "Kingdom", "of", "Norway", "NO", "7", "-", "."]))


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("FRA", "FRA"),
        ("The three-letter code of France is FRA.", "FRA"),
        ("The atomic number of neon is 10. It is a chemical element with", "10"),
        ("Answer: iron\nIt is a metal.", "iron"),
        ('\n\n  "Not Found"  \n', "Not Found"),
        ("<think>Norway is cold. It is N</think>\n\nNOR", "NOR"),
        ("<think>It is NOR, since", None),
        ("", None),
        ("  \n ", None),
        ("**KeyError**", "KeyError"),
        ("The code is: NOR", "NOR"),
        ("An island is Malta", "Malta"),
        ("This", "This"),
        ("The mass is 1.008.", "1.008"),
    ],
)
def test_short_answer(said: str, answer: str | None) -> None:
    assert short_answer(said) == answer


@pytest.mark.parametrize(
    ("answer", "gold", "em", "f1"),
    [
        ("the Kingdom of Norway.", ["Kingdom of Norway"], 1.0, 1.0),
        ("Norway", ["Kingdom of Norway"], 0.0, 0.5),
        ("not found", ["Not Found", "Missing"], 1.0, 1.0),
        ("KeyError", ["IndexError"], 0.0, 0.0),
        ("", ["a"], 1.0, 1.0),  # SQuAD's normal form of an article is nothing
        (None, ["FRA"], 0.0, 0.0),
    ],
)
def test_scores(answer: str | None, gold: list[str], em: float, f1: float) -> None:
    assert (exact_match(answer, gold), f1_squad(answer, gold)) == (em, pytest.approx(f1))


@given(WORDS, WORDS)
def test_f1_is_a_symmetric_overlap_and_one_when_exact(left: list[str], right: list[str]) -> None:
    a, b = " ".join(left), " ".join(right)
    value = f1_squad(a, [b])
    assert 0 <= value <= 1
    assert value == f1_squad(b, [a])
    if exact_match(a, [b]):
        assert value == 1


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@given(st.text())
def test_any_text_gives_an_answer_without_outer_space_or_none(text: str) -> None:
    answer = short_answer(text)
    assert answer is None or (answer and answer == answer.strip(" \t\"'`*"))
