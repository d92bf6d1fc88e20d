"""Answers a question by searching, in the manner of Search-R1 or with Qwen's tool calls.

As in Search-R1 there are `max_turns` turns in which a search is done and a last one in which it is
not; an action that cannot be done, or that the turn's length cut off, is told to the model and
costs its turn. Observations are
messages of their own (`user` for tags, `tool` for calls): Search-R1 itself goes on writing one
text, which a chat server cannot be asked for, so our runs are another protocol and say so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from eval_harness.agents.actions import CLOSERS, Action, Parser, tags, tool_calls, written
from eval_harness.chat import Ask, Message, Outcome, Reply, Request
from eval_harness.errors import HarnessError
from eval_harness.retrievers.passages import Passage, Retriever, RetrieverError

_SEARCH_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Look passages up in a text corpus.",
        "parameters": {
            "type": "object",
            "properties": {
                "query_list": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "One or more self-contained queries.",
                }
            },
            "required": ["query_list"],
        },
    },
}


@dataclass(frozen=True, slots=True)
class _Style:
    parser: Parser
    role: Literal["user", "tool"]
    stop: tuple[str, ...]
    tools: tuple[Mapping[str, Any], ...]
    invalid: str


_STYLES = {
    "search-r1": _Style(
        tags,
        "user",
        CLOSERS,
        (),
        "That was neither a search nor an answer. Write <search> query </search> to look something"
        " up, or the answer in its tag when you know it.",
    ),
    "qwen-tools": _Style(
        tool_calls,
        "tool",
        (),
        (_SEARCH_TOOL,),
        'That call could not be read. Call {"name": "search", "arguments": {"query_list": ["..."]}}'
        " to look something up.",
    ),
}

_LEAST = {"max_turns": 0, "topk": 1, "max_observation_chars": 1, "max_context": 1}


@dataclass(frozen=True, slots=True)
class Settings:
    """What decides the conversation, beside the retriever.

    Args:
        style: `search-r1` (tags) or `qwen-tools` (calls).
        max_turns: turns in which a search is done.
        topk: passages per query.
        max_observation_chars: characters of an observation; the rest is cut off.
        max_context: tokens of the conversation with the answer to come.
        max_new_tokens: of one turn.
        temperature, top_p: of sampling.
    """

    style: str = "search-r1"
    max_turns: int = 4
    topk: int = 3
    max_observation_chars: int = 2000
    max_context: int = 16384
    max_new_tokens: int = 500
    temperature: float = 0.0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.style not in _STYLES:
            raise _refused(f"unknown style {self.style!r}; known: {', '.join(_STYLES)}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise _refused(f"{name} is {value!r}, not a whole number from {least}")

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        """Function schemas that the model must see."""
        return _STYLES[self.style].tools

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings at which a turn ends."""
        return _STYLES[self.style].stop

    def identity(self) -> dict[str, Any]:
        """What decides the conversation, as JSON values."""
        observation = f"{_STYLES[self.style].role} message"
        return {
            **{"kind": "search", "rules": "search/1", "observation": observation},
            **asdict(self),
            "stop": list(self.stop),
        }


@dataclass(slots=True)
class _Talk:
    """A conversation as it grows, and how many tokens it has."""

    prompt: Sequence[Message]
    tools: Sequence[Mapping[str, Any]]
    transcript: list[Message] = field(default_factory=list)
    known: int | None = None
    since: int = 0
    counts: dict[str, int] = field(
        default_factory=lambda: {"searches": 0, "invalid": 0, "turns": 0, "truncated": 0}
    )

    def tokens(self) -> int:
        """The server's own count so far; what came since at two bytes a token, which is many."""
        unseen = self.transcript[self.since :]
        if self.known is None:
            unseen = [*self.prompt, {"content": json.dumps(self.tools)}, *unseen]
        return (self.known or 0) + sum(8 + _guess(message) for message in unseen)

    def said(self, text: str, reply: Reply) -> None:
        self.transcript.append({"role": "assistant", "content": text})
        self.counts["turns"] += 1
        if reply.prompt_tokens is not None and reply.completion_tokens is not None:
            self.known = reply.prompt_tokens + reply.completion_tokens
            self.since = len(self.transcript)

    def outcome(self, finish: str, failure: str = "") -> Outcome:
        return Outcome(tuple(self.transcript), finish, failure, extra=dict(self.counts))


class SearchAgent:
    """See the module; one object serves all samples."""

    def __init__(self, settings: Settings, retriever: Retriever) -> None:
        self._settings, self._retriever = settings, retriever
        self._style = _STYLES[settings.style]

    def identity(self) -> dict[str, Any]:
        """Settings, and the retriever's identity under `retriever`."""
        return {**self._settings.identity(), "retriever": self._retriever.identity()}

    async def run(self, chat: Sequence[Message], ask: Ask, *, seed: int) -> Outcome:
        """Talk until the model is done, its turns or its context are used up, or a call fails.

        `finish` is the last reply's own word; `max_turns` when the model still wanted to search;
        `context` when there is no room for another turn.
        """
        talk = _Talk(chat, self._style.tools)
        for turn in range(self._settings.max_turns + 1):
            room = self._settings.max_context - talk.tokens()
            if room < 1:
                return talk.outcome("context")
            reply = await ask(self._request(talk, room, seed + turn))
            if reply.failure or reply.text is None:
                return talk.outcome(reply.finish, reply.failure or "no text in the reply")
            text = written(reply) if self._style.stop else reply.text
            talk.said(text, reply)
            action = self._style.parser(text)
            if action.kind == "end":
                return talk.outcome(reply.finish)
            talk.counts["invalid"] += action.kind == "invalid"
            if turn == self._settings.max_turns:
                return talk.outcome("max_turns" if action.kind == "search" else reply.finish)
            try:
                observation = await self._observe(action, talk)
            except RetrieverError as error:
                return talk.outcome("", f"infrastructure: {error}")
            talk.transcript.append({"role": self._style.role, "content": observation})
        raise AssertionError("the last turn returns")

    async def close(self) -> None:
        """Close the retriever."""
        await self._retriever.close()

    def _request(self, talk: _Talk, room: int, seed: int) -> Request:
        settings = self._settings
        return Request(
            messages=[*talk.prompt, *talk.transcript],
            max_tokens=min(settings.max_new_tokens, room),
            temperature=settings.temperature,
            top_p=settings.top_p,
            seed=seed,
            stop=self._style.stop,
            tools=self._style.tools,
        )

    async def _observe(self, action: Action, talk: _Talk) -> str:
        if action.kind == "invalid":
            return self._style.invalid
        talk.counts["searches"] += 1
        found = await self._retriever.search(action.queries, self._settings.topk)
        text = "\n---\n".join(_listed(passages) for passages in found)
        if len(text) > self._settings.max_observation_chars:
            talk.counts["truncated"] += 1
            text = text[: self._settings.max_observation_chars]
        if self._style.role == "tool":
            return json.dumps({"result": text}, ensure_ascii=False)
        return f"<information>{text}</information>"


def search_agent(table: Mapping[str, Any], retriever: Retriever, **sampling: Any) -> SearchAgent:
    """The agent of a suite's `[agent]` table; `retriever` is where its searches go.

    Further arguments and errors are those of `search_settings`.
    """
    return SearchAgent(search_settings(table, **sampling), retriever)


def search_settings(table: Mapping[str, Any], **sampling: Any) -> Settings:
    """The settings of a suite's `[agent]` table.

    Args:
        table: `kind`, and fields of `Settings`.
        sampling: further fields of `Settings`, as the suite's sampling and options have them.

    Raises:
        HarnessError: `bad_suite` for an unknown key or style.
    """
    fields = {**table, **sampling}
    fields.pop("kind", None)
    try:
        return Settings(**fields)
    except TypeError as error:
        raise _refused(str(error)) from error


def _refused(why: str) -> HarnessError:
    return HarnessError("bad_suite", f"agent: {why}", next="mend the suite's [agent] table")


def _listed(passages: Sequence[Passage]) -> str:
    return "\n".join(
        f"Doc {number} (Title: {passage.title})\n{passage.text}"
        for number, passage in enumerate(passages, start=1)
    )


def _guess(message: Message) -> int:
    return len(str(message["content"] or "").encode(errors="replace")) // 2
