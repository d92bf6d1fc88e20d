"""The training questions share nothing with what is evaluated, and the check would notice."""

from dataclasses import replace

import pytest

from demo.questions import INSTRUCTION, evaluated_items, overlap, questions


def test_questions_share_nothing_with_the_evaluation() -> None:
    assert overlap(questions(), evaluated_items()) == []


def test_every_question_is_about_another_entry_and_is_answered_by_its_sentence() -> None:
    asked = questions()
    assert len({question.entry for question in asked}) == len(asked) == 48
    for question in asked:
        assert question.answer in question.fact
        assert INSTRUCTION not in question.prompt()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("entry", "pycountry:FR"),
        ("question", "What is the official name of France?"),
        ("fact", "The official name of Chile is Republic of Chile."),
        ("answer", "French republic"),
    ],
)
def test_overlap_names_what_is_shared(field: str, value: str) -> None:
    question = replace(questions()[0], **{field: value})
    assert overlap([question], evaluated_items()) == [f"{question.entry}: {value}"]
