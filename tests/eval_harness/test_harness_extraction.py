from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_harness.extraction.words import Extraction
from eval_harness.extractors import EXTRACTORS
from eval_harness.scorers import SCORERS

BOXED = r"so \boxed{\frac{1}{2}} it is"


def extract(rule: str, *turns: str, prompt: str = "", finish: str = "stop") -> Extraction:
    transcript: list[dict[str, Any]] = []
    for turn in turns:
        transcript += [
            {"role": "assistant", "content": turn},
            {"role": "user", "content": "<information><answer>seen</answer></information>"},
        ]
    return EXTRACTORS[rule]([{"role": "user", "content": prompt}], transcript[:-1], finish)


def call(name: str, arguments: Any) -> str:
    said = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{said}\n</tool_call>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<answer> Paris </answer>", Extraction("Paris", 1)),
        ("<answer>Rome</answer> no: <answer>Paris</answer>", Extraction("Paris", 1)),
        ("<answer>Paris</answer> and <answer>Rome", Extraction("Paris", 1)),
        ("Well.\n**Final answer:** Paris\n", Extraction("Paris", 2)),
        ("final ANSWER : Rome\n> Final answer: Paris", Extraction("Paris", 2)),
        (BOXED, Extraction(r"\frac{1}{2}", 3)),
        (r"\boxed{7} and \boxed{8", Extraction("7", 3)),
        (call("finish", {"answer": "Paris"}), Extraction("Paris", 4)),
        (call("submit", json.dumps({"result": "Paris"})), Extraction("Paris", 4)),
        (f"{call('finish', {'output': 'Paris'})}{call('search', {})}", Extraction("Paris", 4)),
        (
            f"{call('finish', {'answer': 'Rome'})}\nFinal answer: Paris",
            Extraction("Paris", 2, True),
        ),
        (f"{call('finish', {'answer': 'paris'})}\nFinal answer: Paris.", Extraction("Paris.", 2)),
        ("<tool_call>{finish}</tool_call>\nFinal answer: Paris", Extraction("Paris", 2)),
        ("I think so.\nParis\n\n", Extraction("Paris", 5)),
        ("Reasoning about <answer>Rome</answer></think>Paris", Extraction("Paris", 5)),
        ("<think>one</think>x<think>two</think><answer>Paris</answer>", Extraction("Paris", 1)),
        ("<think>The final answer: Rome", Extraction(None, truncated=True)),
        ("", Extraction(None)),
        ("<answer></answer>", Extraction("<answer></answer>", 5)),
    ],
)
def test_the_cascade_takes_the_highest_rung(text: str, expected: Extraction) -> None:
    assert extract("answer_cascade/1", text) == expected


def test_what_was_cut_off_has_no_last_line() -> None:
    assert extract("answer_cascade/1", "Paris is nice", finish="length") == Extraction(
        None, truncated=True
    )
    cut = extract("answer_cascade/1", "<answer>Paris</answer> which", finish="length")
    assert cut == Extraction("Paris", 1, truncated=True)


def test_observations_and_the_prompt_are_never_the_answer() -> None:
    found = extract("answer_cascade/1", "<search>x</search>", "Rome", prompt="<answer>P</answer>")
    assert found == Extraction("Rome", 5)


def test_the_two_extractors_of_search_r1_differ() -> None:
    one = {"prompt": "Say it.", "turns": ("<answer>Paris</answer>",)}
    for prompt, strict in (("Say it.", None), ("Like <answer> Beijing </answer>.", "Paris")):
        assert extract("search_r1/1", *one["turns"], prompt=prompt).text == strict
        assert extract("search_r1_verl/1", *one["turns"], prompt=prompt).text == "Paris"
    assert extract("search_r1_verl/1", "none", prompt="<answer>Beijing</answer>").text is None


@pytest.mark.parametrize(
    "piece", ["<answer>", r"\boxed{", "<tool_call>", "\n", "Final answer", "{"]
)
@pytest.mark.parametrize("rule", EXTRACTORS)
def test_a_model_that_repeats_itself_is_extracted_in_linear_time(rule: str, piece: str) -> None:
    begin = time.process_time()
    extract(rule, piece * 100_000, piece * 100_000)
    assert time.process_time() - begin < 2


@given(
    st.lists(
        st.sampled_from(
            ["<answer>", "</answer>", "<think>", "</think>", r"\boxed{", "}", "x", "\n"]
        )
    ),
    st.sampled_from(["stop", "length", ""]),
)
def test_every_rule_takes_any_text(pieces: list[str], finish: str) -> None:
    text = "".join(pieces)
    for rule in EXTRACTORS:
        found = extract(rule, text, finish=finish)
        assert found.text is None or found.text
        assert (found.tier is None) == (found.text is None) or rule != "answer_cascade/1"
        assert not (found.tier == 5 and finish == "length")


@pytest.mark.parametrize(
    ("answer", "accepted", "em", "sub_em", "squad", "flashrag"),
    [
        ("The Paris!", ["paris"], 1, 1, 1, 1),
        ("It is Paris", ["Paris"], 0, 1, 0.5, 0.5),
        ("yes it is", ["yes"], 0, 1, 0.5, 0),
        ("yes", ["yes", "no"], 1, 1, 1, 1),
        ("no answer", ["noanswer"], 0, 0, 0, 0),
        ("caf\u00e9", ["cafe"], 0, 0, 0, 0),
        ("a\u2013b", ["ab"], 0, 0, 0, 0),
        ("Rome", ["The"], 0, 0, 0, 0),
        ("a", ["The"], 1, 1, 1, 1),
        (None, ["Paris"], 0, 0, 0, 0),
    ],
)
def test_scorers(
    answer: str | None, accepted: list[str], em: float, sub_em: float, squad: float, flashrag: float
) -> None:
    names = ("em/1", "sub_em/1", "f1_squad/1", "f1_flashrag/1")
    found = [SCORERS[name](answer, accepted) for name in names]
    assert found == [em, sub_em, squad, flashrag]
