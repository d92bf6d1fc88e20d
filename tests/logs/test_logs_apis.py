"""Response formats: what each says of its origin, whole and streamed."""

import json
from typing import Any

import pytest
from log_lines import chunk, response
from log_samples import (
    ANTHROPIC,
    ANTHROPIC_EVENTS,
    CONVERSE,
    GEMINI,
    OLLAMA,
    RESPONSES,
    RESPONSES_EVENTS,
    events,
)

from hubtools.logs.answers import records
from hubtools.logs.exchange import Exchange
from hubtools.logs.records import BadLine, Record


def one(answer: Any, **more: Any) -> Record:
    (found,) = records(Exchange(response=answer, **more), "log", 1)
    assert isinstance(found, Record), found
    return found


@pytest.mark.parametrize(
    ("answer", "reported", "id", "created", "grade"),
    [
        (response("chatcmpl-1x"), "model-x", "chatcmpl-1x", 1780000000.0, "B"),
        (RESPONSES, "gpt-x-2025-04-14", "resp_68600000aa", 1751119980.0, "B"),
        (ANTHROPIC, "claude-x-20250101", "msg_01AbCdEfGhIjKlMnOpQrStUv", None, "B"),
        (GEMINI, "gemini-x", "D5MUaYKeH9PjnsEPron42AQ", None, "B"),
        (CONVERSE, "", "", None, "E"),
        (OLLAMA[1], "llama-x", "", 1748118406.294874, "E"),
    ],
    ids=["chat", "Responses", "Anthropic", "Gemini", "Converse", "Ollama"],
)
def test_a_whole_response(answer, reported, id, created, grade) -> None:
    for body in (answer, json.dumps(answer), json.dumps(answer, indent=2).encode()):
        found = one(body)
        assert (found.reported, found.id, found.created) == (reported, id, created)
        assert (found.grade, found.piece) == (grade, False)
        assert found.missing == ("" if reported else "absent")


@pytest.mark.parametrize(
    ("parts", "reported", "id"),
    [
        ([chunk("c1", ""), chunk("c1", "model-x")], "model-x", "c1"),
        (RESPONSES_EVENTS, "gpt-x-2025-04-14", "resp_68600000aa"),
        (ANTHROPIC_EVENTS, "claude-x-20250101", "msg_01AbCdEfGhIjKlMnOpQrStUv"),
        ([GEMINI, GEMINI], "gemini-x", "D5MUaYKeH9PjnsEPron42AQ"),
        (OLLAMA, "llama-x", ""),
    ],
    ids=["chat", "Responses", "Anthropic", "Gemini", "Ollama"],
)
def test_a_stream_is_one_response(parts, reported, id) -> None:
    lines = "\n".join(json.dumps(part) for part in parts)
    for body in (parts, events(*parts), events(*parts).encode(), lines):
        found = one(body)
        assert (found.reported, found.id, found.piece) == (reported, id, True)


def test_a_stream_without_a_known_part_is_bad() -> None:
    (found,) = records(Exchange(response=events({"delta": "Hi"})), "log", 3)
    assert found == BadLine("log", 3, "not a response", "no part of its stream is known")


def test_a_body_that_says_a_key_twice_is_bad() -> None:
    (found,) = records(Exchange(response='{"model": "a", "model": "b"}'), "log", 3)
    assert found == BadLine("log", 3, "duplicate key", "'model'")


@pytest.mark.parametrize(
    ("url", "requested"),
    [
        ("https://g.example/v1beta/models/gemini-x:generateContent", "gemini-x"),
        ("https://g.example/v1beta/models/gemini-x:streamGenerateContent?alt=sse", "gemini-x"),
        ("https://b.example/model/meta.llama-v1%3A0/converse", "meta.llama-v1:0"),
        ("https://a.example/openai/deployments/mine/chat/completions", "mine"),
        ("https://o.example/v1/chat/completions", ""),
    ],
)
def test_the_address_may_name_the_requested_model(url: str, requested: str) -> None:
    assert one(GEMINI, url=url).requested == requested
    assert one(GEMINI, url=url, request='{"model": "body-x"}').requested == "body-x"


def test_a_missing_name_says_how() -> None:
    for key, answer in (("model", ANTHROPIC), ("model", RESPONSES), ("modelVersion", GEMINI)):
        rest = {k: v for k, v in answer.items() if k != key}
        ways = [one(body).missing for body in (rest, {**rest, key: None}, {**rest, key: 7})]
        assert ways == ["absent", "null", "not text"]


def test_a_gateway_lowers_the_grade() -> None:
    assert one(response(), gateway=True).grade == "C"
    assert one([chunk("c", "m")], gateway=True).grade == "E"
    assert one(response(), gateway=True, request={"stream": True}).grade == "E"
    assert one(response(), best="A").grade == "A"


def test_errors_are_no_responses() -> None:
    assert one({"type": "error", "error": {"type": "overloaded_error"}}).error == "overloaded_error"
    assert one({**RESPONSES, "error": {"code": "server_error"}}).error == "server_error"
    assert one(None, error="status 500").error == "status 500"
