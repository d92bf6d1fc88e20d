"""The fixture from the question to the record, against a scripted chat server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from scripted_retriever import ScriptedRetriever
from scripted_server import Answer, fails, says, serving

from eval_harness.agents.making import make_agent
from eval_harness.backends.openai import OpenAIBackend
from eval_harness.retrievers.opening import open_retriever
from eval_harness.retrievers.passages import Retriever
from eval_harness.runner import run
from eval_harness.suite import Suite, load_suite


def nobody(label: str, done: int, total: int | None, unit: str) -> None:
    pass


@pytest.fixture(scope="module")
def suite() -> Suite:
    return load_suite("sr1_7bench-fixture").with_options(limit=1)


def looks_it_up(question: str, attempt: int, headers: dict[str, str]) -> Answer:
    """A model that searches for the question, once more for what it found, and answers.

    It knows two patterns, and gives its answer in the way that the category asks for.
    """
    if asked := re.search(r"Question: (.*)", question):
        return says(f"<think>I look it up.</think><search>{asked[1]}")
    if base := re.search(r"Its base class is (\w+)", question):
        return says(f"So it is.\nFinal answer: {base[1]}")
    if code := re.search(r"its three-letter code is (\w+)", question):
        return says(f"<think>It is there.</think><answer>{code[1]}")
    return says("<think>Nothing there", choices=[cut_off()])


def cut_off() -> dict[str, Any]:
    message = {"role": "assistant", "content": "<think>Nothing there, and so on, and"}
    return {"index": 0, "message": message, "finish_reason": "length"}


def asked(
    suite: Suite, out: Path, script: Any, retriever: Retriever | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    retriever = retriever or open_retriever(suite.retriever, suite.base)
    with serving(script) as (url, _):
        backend = OpenAIBackend(url, "served-name", concurrency=4, pause=0.01)
        agent = make_agent(suite, retriever)
        record = run(suite, backend, agent, out, seed=1, about={}, progress=nobody)
    lines = (out / "samples.jsonl").read_text().splitlines()
    return record, [json.loads(line) for line in lines]


def test_a_run_tells_rungs_turns_and_what_was_cut_off(suite: Suite, tmp_path: Path) -> None:
    record, samples = asked(suite, tmp_path, looks_it_up)
    assert record["n"] == record["items"] == 7
    by_rung = {sample["tier"]: sample for sample in samples}
    assert set(by_rung) == {1, 2, None}
    assert sum(record["tiers"].values()) + record["cut_off"] == 7
    for sample in samples:
        roles = [message["role"] for message in sample["transcript"]]
        assert roles == ["assistant", "user"] * (len(roles) // 2) + ["assistant"]
        assert sample["extra"]["turns"] == sample["turns"] == roles.count("assistant")
        assert sample["transcript"][0]["content"].endswith("</search>")
        assert "</information>" in sample["transcript"][1]["content"]
        if sample["tier"] is None:
            assert sample["truncated"]
            assert sample["extracted"] == dict.fromkeys(sample["scores"])
            assert sample["turns"] == 5
    assert by_rung[1]["extracted"]["em_search_r1"] == by_rung[1]["extracted"]["em_strict"]
    assert record["macro"]["em_cascade"]["categories"] == 7
    assert record["metrics"]["em_strict"]["k"] >= 1


def test_a_dead_retriever_fails_samples_and_scores_no_zero(suite: Suite, tmp_path: Path) -> None:
    questions = [item.question for item in suite.items]
    retriever = ScriptedRetriever({}, broken=questions[:3])
    record, samples = asked(suite, tmp_path, looks_it_up, retriever)
    assert (record["failures"], record["n"]) == (3, 4)
    assert record["failure_kinds"] == {"infrastructure": 3}
    assert [sample["scores"] for sample in samples[:3]] == [None] * 3


def test_a_server_that_fails_midway_fails_that_sample(suite: Suite, tmp_path: Path) -> None:
    def script(question: str, attempt: int, headers: dict[str, str]) -> Answer:
        if "<information>" in question and "Norway" in question:
            return fails(400, "no")
        return looks_it_up(question, attempt, headers)

    record, samples = asked(suite, tmp_path, script)
    failed = [sample for sample in samples if sample["failure"]]
    assert record["failures"] == len(failed) == sum(record["failure_kinds"].values())
    assert all(sample["scores"] is None and sample["transcript"] for sample in failed)


def test_half_a_surrogate_in_a_query_ends_nothing(suite: Suite, tmp_path: Path) -> None:
    def script(question: str, attempt: int, headers: dict[str, str]) -> Answer:
        if "Question: " in question:
            return says("<search>Norway \ud83d</search>")
        return says("<answer>x \ud83d</answer>")

    record, samples = asked(suite, tmp_path, script)
    assert (record["n"], record["failures"]) == (7, 0)
    assert samples[0]["transcript"][0]["content"] == "<search>Norway \ud83d</search>"
    assert samples[0]["output"] == "<answer>x \ud83d</answer>"
