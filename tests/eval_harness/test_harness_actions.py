from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_harness.agents.actions import END, INVALID, Action, tags, tool_calls, written
from eval_harness.chat import Reply


def search(*queries: str) -> Action:
    return Action("search", queries)


def call(data: Any) -> str:
    return f"<tool_call>\n{data if isinstance(data, str) else json.dumps(data)}\n</tool_call>"


def wants(queries: Any) -> dict[str, Any]:
    return {"name": "search", "arguments": {"query_list": queries}}


FINISH = {"name": "finish", "arguments": {"answer": "Rome"}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>so</think><search> a b </search>", search("a b")),
        ("<search>x\ny</search><answer>z</answer>", search("x\ny")),
        ("<answer>z</answer><search>x</search>", END),
        ("<think>maybe <answer>z</answer></think> <search>x</search>", search("x")),
        ("<think>not closed <search>x</search>", search("x")),
        ("thinking, tag in the prompt</think><answer>z</answer>", END),
        ("<search> </search>", INVALID),
        ("<search>x</answer>", INVALID),
        ("<think>so</think>\nFinal answer: Paris", END),
        ("<search>x</search>\nFinal answer: Paris", search("x")),
        ("<think>Final answer: Paris", INVALID),
        ("Final answer:", INVALID),
        ("Paris", INVALID),
        ("", INVALID),
    ],
)
def test_the_first_tag_after_thinking_counts(text: str, expected: Action) -> None:
    assert tags(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (call(wants(["a", " b "])), search("a", "b")),
        (call(wants("a")), search("a")),
        (call({"name": "search", "arguments": json.dumps({"query_list": ["a"]})}), search("a")),
        (call(wants(["a"])) + call(wants(["b"])), search("a")),
        (call(wants(["a"])) + call(FINISH), END),
        (call(FINISH) + "\nFinal answer: Paris", END),
        ("Final answer: Paris", END),
        (f"<think>{call(wants(['a']))}</think>done", END),
        (f"<think>{call(wants(['a']))}", INVALID),
        (f"no opening tag</think>{call(wants(['a']))}", search("a")),
        (call("{finish}"), INVALID),
        (call(wants([])), INVALID),
        (call(wants([" "])), INVALID),
        (call(wants([1])), INVALID),
        (call(wants({"a": 1})), INVALID),
        (call({"name": "python", "arguments": {}}), INVALID),
        (call({"name": ["finish"]}), INVALID),
        (call([1]), INVALID),
        (call("[" * 100_000), INVALID),
        ('<tool_call>{"name": "search"', INVALID),
    ],
)
def test_tool_calls_are_read_from_raw_text(text: str, expected: Action) -> None:
    assert tool_calls(text) == expected


def replies(text: str, reason: Any = "absent", finish: str = "stop") -> Reply:
    choice = {} if reason == "absent" else {"stop_reason": reason}
    return Reply(text, finish, raw={"choices": [choice]})


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply("a <search>x</search> b <answer>y</answer>"), "a <search>x</search>"),
        (Reply("a <answer>x</answer> b"), "a <answer>x</answer>"),
        (Reply("<answer>x", "stop"), "<answer>x"),
        (replies("<search>x"), "<search>x</search>"),
        (replies("<search>x</search>"), "<search>x</search>"),
        (replies("<search>x", finish="length"), "<search>x"),
        (replies("<answer>x", "</answer>"), "<answer>x</answer>"),
        (replies("<answer>x", None), "<answer>x"),
        (replies("<answer>x", 151645), "<answer>x"),
        (replies("plain"), "plain"),
        (Reply("", "stop", raw={"choices": []}), ""),
    ],
)
def test_a_turn_ends_at_its_first_closing_tag(reply: Reply, expected: str) -> None:
    assert written(reply) == expected


PIECES = ["<search>", "</search>", "<answer>", "</answer>", "<think>", "</think>", "x", " ", "{}"]
CALLS = ["<tool_call>", "</tool_call>", '{"name":', '"search"', "}", "[", '"arguments":', "null"]


@given(st.lists(st.sampled_from(PIECES + CALLS)))
def test_any_text_is_an_action(pieces: list[str]) -> None:
    text = "".join(pieces)
    for parse in (tags, tool_calls):
        action = parse(text)
        assert (action.kind == "search") == bool(action.queries)
        assert all(query == query.strip() != "" for query in action.queries)
    cut = written(Reply(text))
    assert text.startswith(cut)
    assert written(Reply(cut)) == cut


@given(st.lists(st.text(min_size=1).filter(lambda text: text.strip()), min_size=1))
def test_every_query_arrives(queries: list[str]) -> None:
    text = f"so</think>{call(wants(queries))}"
    if "</think>" not in "".join(queries) and "</tool_call>" not in "".join(queries):
        assert tool_calls(text) == search(*(query.strip() for query in queries))
