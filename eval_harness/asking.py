"""Has agents answer samples, many at a time, and hands each outcome to the journal."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eval_harness.chat import Agent, Ask, Backend, Outcome, Reply, Request
from eval_harness.errors import HarnessError
from eval_harness.journal import Journal
from eval_harness.live import Live
from eval_harness.suite_model import Suite, canonical_sha256


class Asker:
    """Asks the samples that the journal does not hold.

    A concurrent backend has as many samples in flight as it allows, each refilled at once. A
    lockstep backend goes in whole waves of the suite's order, so that each of its batches is the
    same in a run that was interrupted; a wave of which a sample is missing is asked whole.
    """

    def __init__(
        self,
        suite: Suite,
        backend: Backend,
        agent: Agent,
        seed: int,
        journal: Journal,
        live: Live,
        known: Mapping[str, set[str]] | None = None,
    ) -> None:
        self._suite, self._backend, self._agent = suite, backend, agent
        self._seed, self._journal, self._live = seed, journal, live
        self._known = known or {}

    async def ask_all(self) -> None:
        """Ask until every sample is there.

        Raises:
            HarnessError: nothing more can be asked; what was answered is in the journal.
            OSError: the journal cannot be written.
        """
        try:
            if self._backend.lockstep:
                await self._in_waves()
            else:
                await self._refilled()
            self._live.tell(now=True)
        except ExceptionGroup as group:
            raise _first(group) from group
        finally:
            await self._agent.close()
            await self._backend.close()

    async def _refilled(self) -> None:
        places = (place for place in range(self._suite.size) if place not in self._journal)
        self._live.tell(now=True)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._backend.concurrency):
                tasks.create_task(self._worker(places))

    async def _worker(self, places: Iterator[int]) -> None:
        async def ask(request: Request) -> Reply:
            return (await self._backend.ask_all([request]))[0]

        for place in places:
            self._keep([(place, await self._sample(place, ask))])

    async def _in_waves(self) -> None:
        size, width = self._suite.size, self._backend.concurrency
        for start in range(0, size, width):
            wave = range(start, min(start + width, size))
            if all(place in self._journal for place in wave):
                continue
            self._live.tell()
            step = _Lockstep(self._backend, len(wave))
            async with asyncio.TaskGroup() as tasks:
                made = [
                    tasks.create_task(step.through(self._sample(place, step.asker(number))))
                    for number, place in enumerate(wave)
                ]
            self._keep([(place, task.result()) for place, task in zip(wave, made, strict=True)])

    def _keep(self, entries: Sequence[tuple[int, dict[str, Any]]]) -> None:
        for _, entry in entries:
            self._require_known(entry["outcome"]["served"] or {})
        self._journal.write(entries)
        for place, entry in entries:
            self._live.add(place, entry["outcome"])
        self._live.tell()

    def _require_known(self, served: Mapping[str, str]) -> None:
        for side, name in served.items():
            before = self._known.get(side, set())
            if name and len(before) == 1 and name not in before:
                raise HarnessError(
                    "other_run",
                    f"the server is another one than gave the answers so far: its {side} is"
                    f" {name[:80]!r}, and was {next(iter(before))[:80]!r}",
                    next="start the server as it was, or evaluate into another folder: -o OUT",
                )

    async def _sample(self, place: int, ask: Ask) -> dict[str, Any]:
        item, trial = self._suite.at(place)
        calls = _Calls(ask)
        seed = sample_seed(self._seed, item.id, trial)
        outcome = await self._agent.run(self._suite.messages(item), calls.ask, seed=seed)
        return {
            "item": item.id,
            "trial": trial,
            "calls": calls.made,
            "outcome": calls.outcome(outcome),
        }


@dataclass(slots=True)
class _Calls:
    """The calls of one sample, as they go into the journal."""

    forward: Ask
    made: list[dict[str, Any]] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

    async def ask(self, request: Request) -> Reply:
        reply = await self.forward(request)
        response: Any = reply.raw
        if response is None:
            response = {"text": reply.text, "finish": reply.finish}
        self.made.append(
            {
                "params": _params(request),
                "prompt_sha256": canonical_sha256([request.messages, request.tools]),
                "response": response,
                "failure": reply.failure,
            }
        )
        self.replies.append(reply)
        return reply

    def outcome(self, outcome: Outcome) -> dict[str, Any]:
        """The fields of a sample that asking decides."""
        kind = ""
        if outcome.failure:
            failed = self.replies and self.replies[-1].failure
            kind = self.replies[-1].failure_kind if failed else outcome.failure.partition(":")[0]
        return {
            "transcript": list(outcome.transcript),
            "finish": outcome.finish,
            "turns": len(self.made),
            "tokens": {
                "prompt": _total([reply.prompt_tokens for reply in self.replies]),
                "completion": _total([reply.completion_tokens for reply in self.replies]),
            },
            "failure": outcome.failure,
            "failure_kind": kind,
            "served": self._served(),
            "extra": dict(outcome.extra),
        }

    def _served(self) -> dict[str, str] | None:
        said = [reply.raw for reply in self.replies if reply.raw is not None]
        if not said:
            return None
        return {
            side: ", ".join(dict.fromkeys(str(raw.get(key) or "") for raw in said))
            for side, key in (("model", "model"), ("fingerprint", "system_fingerprint"))
        }


class _Lockstep:
    """Waits until every live sample of a wave wants an answer, then asks for all at once."""

    def __init__(self, backend: Backend, live: int) -> None:
        self._backend, self._live = backend, live
        self._waiting: dict[int, tuple[Request, asyncio.Future[Reply]]] = {}

    def asker(self, number: int) -> Ask:
        async def ask(request: Request) -> Reply:
            future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            self._waiting[number] = (request, future)
            await self._flush()
            return await future

        return ask

    async def through(self, sample: Any) -> dict[str, Any]:
        """Await `sample`, then no longer wait for it."""
        entry: dict[str, Any] = await sample
        self._live -= 1
        await self._flush()
        return entry

    async def _flush(self) -> None:
        if not self._waiting or len(self._waiting) < self._live:
            return
        batch = [self._waiting[number] for number in sorted(self._waiting)]
        self._waiting.clear()
        replies = await self._backend.ask_all([request for request, _ in batch])
        for (_, future), reply in zip(batch, replies, strict=True):
            future.set_result(reply)


def sample_seed(seed: int, item: str, trial: int) -> int:
    """31 bits of sha256 of `seed/item/trial`; a call's seed adds the number of calls before it."""
    digest = hashlib.sha256(json.dumps([seed, item, trial]).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _params(request: Request) -> dict[str, Any]:
    return {
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "seed": request.seed,
        "stop": list(request.stop),
        "tools": len(request.tools),
    }


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _first(group: ExceptionGroup[Exception]) -> Exception:
    error: Exception = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
