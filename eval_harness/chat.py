"""The words that agents, backends and the runner share: requests, replies, outcomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Message = dict[str, Any]
"""`role` (system, user, assistant, tool) and `content`, as in the chat-completions API."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call of a model.

    Args:
        messages: the conversation so far.
        tools: function schemas that the chat template renders. What the model writes comes back as
            raw text: no server-side parser may cut a call out of it.
        max_tokens: of the answer.
        temperature: 0 is greedy.
        top_p: 1 keeps all.
        seed: of this call, where something is sampled.
        stop: strings at which writing ends; they are kept in the text where the backend can.
    """

    messages: Sequence[Message]
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one request.

    Args:
        text: what was written, raw; None when there is no answer.
        finish: `stop`, `length`, or the server's own word.
        prompt_tokens, completion_tokens: None where the backend does not say.
        failure: why there is no answer; empty when there is one. A failure is counted, not scored.
        raw: a server's whole response; None in process.
        failure_kind: `infrastructure` (asking again may help), `context` (the prompt is too long),
            `refused` (the server did not like the request), `no_text`; empty without a failure.
    """

    text: str | None
    finish: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    failure: str = ""
    raw: Mapping[str, Any] | None = None
    failure_kind: str = ""


Ask = Callable[[Request], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one sample.

    Args:
        transcript: messages after the prompt, in order: `assistant` as the model wrote it, `tool`
            or `user` for observations. Extractors read the `assistant` ones alone.
        finish: of the last reply, or the agent's own word (`max_turns`, `context`).
        failure: why the sample cannot be scored; empty when it can. One failed call fails one
            sample, never the run.
        extra: what the agent counts (searches, invalid actions): JSON values.
    """

    transcript: Sequence[Message]
    finish: str = ""
    failure: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


class Agent(Protocol):
    """How one item becomes an outcome. It holds no state between samples."""

    def identity(self) -> dict[str, Any]:
        """Everything that decides what is asked, as JSON values: part of the protocol."""
        ...

    async def run(self, chat: Sequence[Message], ask: Ask, *, seed: int) -> Outcome:
        """Answer the question that `chat` ends with.

        Raises:
            HarnessError: nothing more can be asked of anyone.
        """
        ...

    async def close(self) -> None:
        """Give back connections."""
        ...


class Backend(Protocol):
    """Answers requests.

    `concurrency` samples are in flight. A `lockstep` backend computes the pending requests of all
    of them together: its samples go in whole waves, so that every batch is the same in a run that
    was interrupted.
    """

    concurrency: int
    lockstep: bool

    def describe(self) -> dict[str, Any]:
        """Name, versions and settings for the record: JSON values, no secrets."""
        ...

    async def ask_all(self, requests: Sequence[Request]) -> list[Reply]:
        """One reply per request, in order; a failed call is a reply with `failure`.

        Raises:
            HarnessError: nothing more can be asked (server gone, key refused, broken weights).
        """
        ...

    async def close(self) -> None:
        """Give back connections and memory."""
        ...
