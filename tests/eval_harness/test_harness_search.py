from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from inline_snapshot import snapshot
from scripted_retriever import ScriptedRetriever

from eval_harness.agents.search import search_agent
from eval_harness.chat import Outcome, Reply, Request
from eval_harness.errors import HarnessError

CHAT = [{"role": "user", "content": "Which currency has the number of Norway?"}]
CORPUS = {
    "Norway": ['"Norway"\nThe number of Norway is 578.', '"Oslo"\nA city.'],
    "578": ['"NOK"\nThe number of NOK is 578.'],
}


class Model:
    """Says its lines one after another, and keeps what it was asked."""

    def __init__(self, lines: Sequence[str | Reply], tokens: bool = True) -> None:
        self._lines = list(lines)
        self._tokens = tokens
        self.asked: list[Request] = []

    async def __call__(self, request: Request) -> Reply:
        self.asked.append(request)
        line = self._lines[len(self.asked) - 1]
        if isinstance(line, Reply):
            return line
        used = sum(len(str(message["content"])) for message in request.messages)
        return Reply(line, "stop", *((used, len(line)) if self._tokens else ()))


def talk(model: Model, retriever: ScriptedRetriever | None = None, **table: Any) -> Outcome:
    agent = search_agent({"kind": "search", **table}, retriever or ScriptedRetriever(CORPUS))
    return asyncio.run(agent.run(CHAT, model, seed=7))


def test_the_loop_of_tags() -> None:
    model = Model(
        [
            "<think>first</think><search>Norway</search>",
            "I am lost",
            "<search>578</search>",
            "<think>so</think><answer>NOK</answer>",
        ]
    )
    outcome = talk(model)
    assert [f"{m['role']}: {m['content']}" for m in outcome.transcript] == snapshot(
        [
            "assistant: <think>first</think><search>Norway</search>",
            """\
user: <information>Doc 1 (Title: Norway)
The number of Norway is 578.
Doc 2 (Title: Oslo)
A city.</information>\
""",
            "assistant: I am lost",
            "user: That was neither a search nor an answer. Write <search> query </search> to look something up, or the answer in its tag when you know it.",  # noqa: E501
            "assistant: <search>578</search>",
            """\
user: <information>Doc 1 (Title: NOK)
The number of NOK is 578.</information>\
""",
            "assistant: <think>so</think><answer>NOK</answer>",
        ]
    )
    assert (outcome.finish, outcome.failure) == ("stop", "")
    assert outcome.extra == {"searches": 2, "invalid": 1, "turns": 4, "truncated": 0}
    assert [request.seed for request in model.asked] == [7, 8, 9, 10]
    assert model.asked[-1].messages == [*CHAT, *outcome.transcript[:-1]]
    assert model.asked[0].stop == ("</search>", "</answer>")


def test_the_loop_of_calls_keeps_what_follows_a_call() -> None:
    call = (
        '<tool_call>{"name": "search", "arguments": {"query_list": ["Norway", "578"]}}</tool_call>'
    )
    last = '<tool_call>{"name": "finish", "arguments": {}}</tool_call>\nFinal answer: NOK'
    retriever = ScriptedRetriever(CORPUS)
    model = Model([f"so</think>{call}", "<tool_call>{</tool_call>", last])
    outcome = talk(model, retriever, style="qwen-tools", topk=2)
    observation = json.loads(outcome.transcript[1]["content"])
    assert observation == snapshot(
        {
            "result": """\
Doc 1 (Title: Norway)
The number of Norway is 578.
Doc 2 (Title: Oslo)
A city.
---
Doc 1 (Title: NOK)
The number of NOK is 578.\
"""
        }
    )
    assert [message["role"] for message in outcome.transcript] == ["assistant", "tool"] * 2 + [
        "assistant"
    ]
    assert outcome.transcript[-1]["content"] == last
    assert retriever.seen == [(("Norway", "578"), 2)]
    assert model.asked[0].stop == ()
    assert model.asked[0].tools[0]["function"]["name"] == "search"
    assert outcome.extra == {"searches": 1, "invalid": 1, "turns": 3, "truncated": 0}


def test_the_last_turn_does_not_search() -> None:
    retriever = ScriptedRetriever(CORPUS)
    outcome = talk(Model(["<search>Norway</search>"] * 3), retriever, max_turns=2)
    assert outcome.finish == "max_turns"
    assert len(retriever.seen) == 2
    assert outcome.transcript[-1]["role"] == "assistant"


def test_a_turn_that_was_cut_off_is_told_and_costs_its_turn() -> None:
    cut = Reply("<think>and so on and <search>Nor", "length", 10, 5, raw={"choices": [{}]})
    outcome = talk(Model([cut, "<answer>NOK</answer>"]))
    assert (outcome.finish, outcome.extra["invalid"]) == ("stop", 1)
    assert talk(Model([cut] * 5)).finish == "length"


def test_plain_text_in_the_last_turn_is_an_end() -> None:
    outcome = talk(Model(["It is NOK."] * 5))
    assert (outcome.finish, outcome.extra["invalid"]) == ("stop", 5)


def test_observations_are_cut_and_counted() -> None:
    outcome = talk(
        Model(["<search>Norway</search>", "<answer>x</answer>"]), max_observation_chars=20
    )
    assert outcome.transcript[1]["content"] == "<information>Doc 1 (Title: Norway</information>"
    assert outcome.extra["truncated"] == 1


def test_the_context_ends_a_conversation() -> None:
    used = len(CHAT[0]["content"]) + 23
    lines = ["<search>Norway</search>", "<search>578</search>", "<answer>NOK</answer>"]
    model = Model(lines)
    assert talk(model, max_context=used + 30).finish == "context"
    assert len(model.asked) == 1
    assert model.asked[0].max_tokens < 500
    model = Model(lines)
    assert talk(model, max_context=4000).finish == "stop"
    assert model.asked[0].max_tokens == 500


def test_tokens_that_nobody_counted_are_guessed_high() -> None:
    lines = ["<search>Norway</search>", "<answer>NOK</answer>"]
    model = Model(lines, tokens=False)
    assert talk(model, max_context=80).finish == "context"
    assert len(model.asked) == 1
    assert talk(Model(lines, tokens=False), max_context=400).finish == "stop"


def test_a_broken_retriever_fails_the_sample_and_is_no_zero() -> None:
    retriever = ScriptedRetriever(CORPUS, broken=["Norway"])
    outcome = talk(Model(["<search>Norway</search>"]), retriever)
    assert outcome.failure == "infrastructure: cannot find Norway"
    assert len(outcome.transcript) == 1


def test_a_failed_call_fails_the_sample() -> None:
    failed = Reply(None, failure="infrastructure: HTTP 500")
    outcome = talk(Model(["<search>Norway</search>", failed]))
    assert outcome.failure == "infrastructure: HTTP 500"
    assert talk(Model([Reply(None, "stop")])).failure == "no text in the reply"


def test_everything_that_decides_is_in_the_identity() -> None:
    base = search_agent({}, ScriptedRetriever({})).identity()
    changes = {
        **{"style": "qwen-tools", "max_turns": 1, "topk": 9, "max_observation_chars": 1},
        **{"max_context": 8192, "max_new_tokens": 2, "temperature": 0.5, "top_p": 0.5},
    }
    for name, value in changes.items():
        assert search_agent({name: value}, ScriptedRetriever({})).identity() != base
    assert json.loads(json.dumps(base)) == base


@pytest.mark.parametrize(
    "table", [{"style": "react"}, {"max_turn": 3}, {"topk": 0}, {"max_turns": "4"}]
)
def test_a_wrong_table_is_named(table: dict[str, Any]) -> None:
    with pytest.raises(HarnessError, match="agent") as caught:
        search_agent(table, ScriptedRetriever({}))
    assert caught.value.kind == "bad_suite"
