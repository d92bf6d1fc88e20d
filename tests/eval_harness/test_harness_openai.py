from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from typing import Any

import pytest
from scripted_server import CUT, Answer, fails, says, serving

from eval_harness.backends.openai import OpenAIBackend, public_url
from eval_harness.chat import Reply, Request
from eval_harness.chat_template import ChatTemplate
from eval_harness.errors import HarnessError


def chat(question: str, **more: Any) -> Request:
    return Request([{"role": "user", "content": question}], max_tokens=5, seed=3, **more)


async def answered(backend: OpenAIBackend, *requests: Request) -> list[Reply]:
    try:
        return await backend.ask_all(requests)
    finally:
        await backend.close()


def ask(script, *questions: str, key: str = "") -> tuple[list[Reply], list[dict]]:  # type: ignore[no-untyped-def]
    with serving(script) as (url, requests):
        backend = OpenAIBackend(url, "wanted", api_key_env="TEST_KEY", pause=0.01)
        return asyncio.run(answered(backend, *map(chat, questions))), requests


def test_replies_keep_order_usage_and_the_whole_response() -> None:
    replies, requests = ask(lambda q, *_: says(f"re {q}"), "a", "b", "c", "d", "e")
    assert [reply.text for reply in replies] == ["re a", "re b", "re c", "re d", "re e"]
    assert (replies[0].prompt_tokens, replies[0].completion_tokens) == (7, 3)
    assert replies[0].raw is not None
    assert replies[0].raw["model"] == "served-name"
    assert replies[0].raw["system_fingerprint"] == "fp-1"
    sent = min(requests, key=lambda body: body["messages"][0]["content"])
    assert sent == {
        "model": "wanted",
        "messages": [{"role": "user", "content": "a"}],
        "max_tokens": 5,
        "temperature": 0.0,
        "seed": 3,
    }


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again(status: int) -> None:
    def script(question: str, attempt: int, _: dict) -> Answer:
        return fails(status, retry_after="0") if attempt < 3 else says("at last")

    replies, requests = ask(script, "a")
    assert replies[0].text == "at last"
    assert len(requests) == 3


def test_a_question_that_keeps_failing_fails_alone() -> None:
    replies, requests = ask(
        lambda q, *_: fails(500, "out of luck") if q == "bad" else says("ok"), "a", "bad", "c"
    )
    assert [reply.text for reply in replies] == ["ok", None, "ok"]
    assert replies[1].failure == "HTTP 500: out of luck"
    assert sum(body["messages"][0]["content"] == "bad" for body in requests) == 5


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (says(None), "content is NoneType, not text"),
        (says([{"type": "text"}]), "content is list, not text"),
        ((200, {}, b'{"choices": []}'), "the response has no choices[0].message.content"),
        ((200, {}, b'{"choices": ["x"]}'), "the response has no choices[0].message.content"),
        ((200, {}, b"[1]"), "the response has no choices[0].message.content"),
        ((200, {}, b"<html>"), "the response is not JSON"),
        (fails(400, "context too long"), "HTTP 400: context too long"),
    ],
)
def test_an_answer_that_is_none_is_a_failure_and_not_a_zero(answer: Answer, failure: str) -> None:
    [reply], _ = ask(lambda *_: answer, "a")
    assert (reply.text, reply.failure) == (None, failure)


def test_an_empty_text_is_an_answer_and_usage_may_be_missing_or_odd() -> None:
    [reply], _ = ask(lambda *_: says("", usage=None), "a")
    assert (reply.text, reply.failure, reply.prompt_tokens) == ("", "", None)
    [reply], _ = ask(lambda *_: says("x", usage={"prompt_tokens": "7"}), "a")
    assert (reply.text, reply.prompt_tokens) == ("x", None)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, "refused"), (403, "refused"), (404, "unreachable"), (405, "unreachable")],
)
def test_a_refusal_ends_the_run_at_once_without_the_key(
    monkeypatch: pytest.MonkeyPatch, status: int, kind: str
) -> None:
    monkeypatch.setenv("TEST_KEY", "sk-very-secret")
    seen: list[str] = []

    def script(question: str, attempt: int, headers: dict) -> Answer:
        seen.append(headers["Authorization"])
        return fails(status, "bad key sk-very-secret")

    with pytest.raises(HarnessError) as caught:
        ask(script, "a")
    assert caught.value.kind == kind
    assert caught.value.message == f"the server says HTTP {status}: bad key ***"
    assert seen == ["Bearer sk-very-secret"]


def test_no_server_is_said_after_retries_without_credentials_in_the_address() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    backend = OpenAIBackend(f"http://me:pw@127.0.0.1:{port}/v1/?token=t", "m", pause=0.01)
    with pytest.raises(HarnessError) as caught:
        asyncio.run(answered(backend, chat("a")))
    assert caught.value.kind == "unreachable"
    assert caught.value.where == f"http://127.0.0.1:{port}/v1/"
    assert "pw" not in str(backend.describe())
    assert public_url("https://a:b@host:8/v1?x=1#y") == "https://host:8/v1"


def test_a_cut_connection_is_tried_again_and_then_fails_its_sample() -> None:
    def script(question: str, attempt: int, _: dict) -> Answer:
        return says("ok") if question == "a" or attempt == 3 else (CUT, {}, b"")

    with serving(script) as (url, _):
        backend = OpenAIBackend(url, "m", concurrency=4, pause=0.01)

        async def three() -> list[Reply]:
            first = await backend.ask_all([chat("a")])
            return first + await answered(backend, chat("b"))

        replies = asyncio.run(three())
    assert [reply.text for reply in replies] == ["ok", "ok"]

    def gone(question: str, attempt: int, _: dict) -> Answer:
        return says("ok") if question == "a" else (CUT, {}, b"")

    with serving(gone) as (url, _):
        backend = OpenAIBackend(url, "m", concurrency=3, pause=0.001)

        async def four() -> list[Reply]:
            first = await backend.ask_all([chat("a")])
            for question in "bc":
                first += await backend.ask_all([chat(question)])
            with pytest.raises(HarnessError, match="does not answer") as caught:
                await answered(backend, chat("d"))
            assert caught.value.kind == "unreachable"
            return first

        replies = asyncio.run(four())
    assert [reply.failure_kind for reply in replies] == ["", "infrastructure", "infrastructure"]
    assert "connection was lost" in replies[1].failure


def test_a_server_that_hangs_fails_its_sample() -> None:
    def script(question: str, *_: object) -> Answer:
        if question == "slow":
            time.sleep(0.5)
        return says("ok")

    with serving(script) as (url, requests):
        backend = OpenAIBackend(url, "m", timeout=0.1, pause=0.001)
        replies = asyncio.run(answered(backend, chat("a"), chat("slow")))
    assert replies[0].text == "ok"
    assert (replies[1].failure, replies[1].failure_kind) == (
        *("no answer in time", "infrastructure"),
    )
    assert sum(body["messages"][0]["content"] == "slow" for body in requests) == 5


def test_retry_after_is_waited_for() -> None:
    def script(question: str, attempt: int, _: dict) -> Answer:
        return fails(429, retry_after="1") if attempt == 1 else says("ok")

    begin = time.monotonic()
    [reply], _ = ask(script, "a")
    assert reply.text == "ok"
    assert time.monotonic() - begin >= 1


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (fails(400, "This model's maximum context length is 2048 tokens"), "context"),
        (fails(400, "no such parameter"), "refused"),
        (fails(500), "infrastructure"),
        (says(None), "no_text"),
        ((200, {}, b"[" * 100_000), "infrastructure"),
    ],
)
def test_failures_have_a_kind(answer: Answer, kind: str) -> None:
    [reply], _ = ask(lambda *_: answer, "a")
    assert (reply.text, reply.failure_kind) == (None, kind)


def test_reasoning_without_an_answer_is_a_failure_and_kept() -> None:
    message = {"role": "assistant", "content": None, "reasoning": "Let me think"}
    choice = {"message": message, "finish_reason": "length"}
    [reply], _ = ask(lambda *_: says("", choices=[choice]), "a")
    assert (reply.text, reply.finish, reply.failure_kind) == (None, "length", "no_text")
    assert reply.raw is not None
    assert reply.raw["choices"][0]["message"]["reasoning"] == "Let me think"


def test_tools_are_rendered_here_and_no_parser_touches_the_text() -> None:
    text = '<tool_call>{"name": "finish"}</tool_call>\nFinal answer: Paris'
    template = ChatTemplate({"default": "{{ tools | tojson }}|{{ messages[0].content }}"}, {})
    tool = {"type": "function", "function": {"name": "finish"}}
    request = chat("Where?", tools=(tool,), stop=("</answer>",), top_p=0.9)
    script = lambda *_: says("", choices=[{"text": text, "finish_reason": "stop"}])  # noqa: E731
    with serving(script) as (url, requests):
        backend = OpenAIBackend(url, "m", template=template, keeps_stop=True)
        [reply] = asyncio.run(answered(backend, request))
        with pytest.raises(HarnessError, match="no chat template is known") as caught:
            asyncio.run(answered(OpenAIBackend(url, "m"), request))
    assert caught.value.kind == "bad_suite"
    assert reply.text == text
    [body] = requests
    assert body["prompt"] == f"{json.dumps([tool])}|Where?"
    assert "messages" not in body
    assert (body["add_special_tokens"], body["include_stop_str_in_output"]) == (False, True)
    assert (body["stop"], body["top_p"]) == (["</answer>"], 0.9)


@pytest.mark.parametrize(("key", "sent"), [("", "Basic bWU6cEB3"), ("k", "Bearer k")])
def test_a_user_in_the_address_is_sent_where_there_is_no_key(
    monkeypatch: pytest.MonkeyPatch, key: str, sent: str
) -> None:
    monkeypatch.setenv("TEST_KEY", key)
    seen: list[str] = []

    def script(question: str, attempt: int, headers: dict) -> Answer:
        seen.append(headers["Authorization"])
        return says("ok")

    with serving(script) as (url, _):
        backend = OpenAIBackend(url.replace("//", "//me:p%40w@"), "m", api_key_env="TEST_KEY")
        asyncio.run(answered(backend, chat("a")))
    assert seen == [sent]


def test_an_address_that_is_none_is_said() -> None:
    backend = OpenAIBackend("localhost:8000", "m", pause=0.0)
    with pytest.raises(HarnessError, match="does not answer"):
        asyncio.run(answered(backend, chat("a")))


@pytest.mark.parametrize("status", [400, 401])
def test_user_and_password_of_the_address_are_repeated_by_nobody(status: int) -> None:
    said = "no: me:p%40ssword me:p@ssword p@ssword bWU6cEBzc3dvcmQ="
    with serving(lambda *_: fails(status, said)) as (url, _):
        backend = OpenAIBackend(url.replace("//", "//me:p%40ssword@"), "m")
        if status == 400:
            [reply] = asyncio.run(answered(backend, chat("a")))
            words = reply.failure
        else:
            with pytest.raises(HarnessError) as caught:
                asyncio.run(answered(backend, chat("a")))
            words = caught.value.message
    assert words.endswith(f"HTTP {status}: no: *** *** *** ***")


def test_a_key_that_an_answer_repeats_is_kept_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "k3y-very-secret")
    more = {"debug": {"k3y-very-secret": ["Bearer k3y-very-secret"]}}
    [reply], _ = ask(lambda *_: says("it is k3y-very-secret", **more), "a", key="TEST_KEY")
    assert reply.text == "it is ***"
    assert reply.raw is not None
    assert reply.raw["debug"] == {"***": ["Bearer ***"]}


def test_a_key_that_is_a_word_is_left_in_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "EMPTY")
    [reply], _ = ask(lambda *_: says("EMPTY"), "a", key="TEST_KEY")
    assert reply.text == "EMPTY"


@pytest.mark.parametrize("key", ["schl\u00fcssel", "a\nb"])
def test_a_key_that_no_header_can_hold_is_refused(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("TEST_KEY", key)
    with pytest.raises(HarnessError, match="no header can hold") as caught:
        ask(lambda *_: says("ok"), "a", key="TEST_KEY")
    assert caught.value.kind == "refused"
    assert key not in str(vars(caught.value))


@pytest.mark.parametrize(
    "url",
    [
        "user:S3CRETpw@host/v1",
        "http:/user:S3CRETpw@host/v1",
        "http://user:S3CRET/pw@host/v1",
        "http://user:S3CRET#pw@host/v1",
        "http://user:S3CRET?pw@host/v1",
        "http://user:S3CRETpw@[::1/v1",
        "http://user:S3CRETpw",
    ],
)
def test_of_a_mistyped_address_nothing_secret_is_shown(url: str) -> None:
    backend = OpenAIBackend(url, "m", pause=0.0)
    with pytest.raises(HarnessError, match="does not answer") as caught:
        asyncio.run(answered(backend, chat("a")))
    assert caught.value.kind == "unreachable"
    assert "S3CRET" not in f"{vars(caught.value)}{backend.describe()}{public_url(url)}"


def test_what_can_be_shown_is_shown() -> None:
    assert public_url("http://a:b@[::1]:80/v1") == "http://[::1]:80/v1"
    assert public_url("localhost:8000/v1") == "localhost:8000/v1"


def test_an_odd_retry_after_is_passed_over() -> None:
    def script(question: str, attempt: int, _: dict) -> Answer:
        return fails(429, retry_after="\u00b2") if attempt == 1 else says("ok")

    [reply], _ = ask(script, "a")
    assert reply.text == "ok"


def test_a_server_that_drips_has_no_more_time_than_another() -> None:
    ended: list[asyncio.Event] = []

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over = asyncio.Event()
        ended.append(over)
        with contextlib.suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            for _ in range(40):
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()
        over.set()

    async def asked() -> list[Reply]:
        async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            url = f"http://127.0.0.1:{port}/v1"
            backend = OpenAIBackend(url, "m", timeout=0.15, pause=0.0)
            replies = await answered(backend, chat("a"))
            await asyncio.gather(*(event.wait() for event in ended))
            return replies

    [reply] = asyncio.run(asked())
    assert (reply.failure, reply.failure_kind) == ("no answer in time", "infrastructure")


def test_a_reply_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval_harness.backends.openai.LARGEST", 1 << 20)
    [reply], _ = ask(lambda *_: says("x" * (3 << 20)), "a")
    assert (reply.text, reply.failure) == (None, "the response is larger than 1 MiB")
