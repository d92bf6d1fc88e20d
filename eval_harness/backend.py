"""What a backend is: something that answers chats, a batch at a time, and says what it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from eval_harness.suite import Message


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one chat.

    Args:
        text: what was written; None when there is no answer.
        finish: `stop`, `length`, or the server's own word.
        prompt_tokens, completion_tokens: None where the backend does not say.
        failure: why there is no answer; empty when there is one. A failure is counted, not scored.
        raw: a server's whole response; None in process.
    """

    text: str | None
    finish: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    failure: str = ""
    raw: Mapping[str, Any] | None = None


class Backend(Protocol):
    """Answers chats. `batch_size` chats are asked together; it is part of the protocol."""

    batch_size: int

    def describe(self) -> dict[str, Any]:
        """Name, versions and settings for the record: JSON values, no secrets."""
        ...

    def answer(
        self,
        chats: Sequence[list[Message]],
        *,
        max_new_tokens: int,
        temperature: float,
        seed: int,
    ) -> list[Reply]:
        """One reply per chat, in order.

        Raises:
            HarnessError: nothing more can be asked (server gone, key refused, broken weights).
        """
        ...
