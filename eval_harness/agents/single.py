"""One question, one answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from eval_harness.chat import Ask, Message, Outcome, Request

if TYPE_CHECKING:
    from eval_harness.suite_model import Sampling


class SingleAgent:
    """Asks once."""

    IDENTITY: ClassVar[dict[str, Any]] = {"kind": "single"}

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling

    def identity(self) -> dict[str, Any]:
        """Its kind; the suite says the rest."""
        return self.IDENTITY

    async def run(self, chat: Sequence[Message], ask: Ask, *, seed: int) -> Outcome:
        """The model's answer to `chat`."""
        sampling = self._sampling
        reply = await ask(
            Request(
                chat,
                max_tokens=sampling.max_new_tokens,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                seed=seed,
                stop=sampling.stop,
            )
        )
        if reply.failure or reply.text is None:
            return Outcome((), reply.finish, reply.failure or "no text in the reply")
        return Outcome(({"role": "assistant", "content": reply.text},), reply.finish)

    async def close(self) -> None:
        """Nothing to give back."""
