"""Who is asked when, in flight and in lockstep; what samples add up to; options of a suite."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tiny_chat import write_suite

from eval_harness.agents.single import SingleAgent
from eval_harness.chat import Ask, Message, Outcome, Reply, Request
from eval_harness.errors import HarnessError
from eval_harness.live import Live
from eval_harness.runner import run
from eval_harness.scoring import Tally
from eval_harness.suite import Suite, load_suite
from eval_harness.suite_model import Sampling

SINGLE = SingleAgent(Sampling(8))


def nobody(label: str, done: int, total: int | None, unit: str) -> None:
    pass


class Counts:
    """A backend that says how often it was asked, and keeps what it was asked together."""

    def __init__(self, *, lockstep: bool, concurrency: int = 4) -> None:
        self.lockstep, self.concurrency = lockstep, concurrency
        self.batches: list[list[str]] = []
        self.in_flight = self.most = 0

    def describe(self) -> dict[str, Any]:
        return {"backend": "counts"}

    async def ask_all(self, requests: Sequence[Request]) -> list[Reply]:
        self.batches.append([request.messages[0]["content"] for request in requests])
        self.in_flight += len(requests)
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(0.001)
        self.in_flight -= len(requests)
        return [Reply(f"turn {len(r.messages)}", "stop", 2, 3) for r in requests]

    async def close(self) -> None:
        pass


class Turns:
    """Asks as many times as the number of the word in the question, modulo four, and once more."""

    def identity(self) -> dict[str, Any]:
        return {"kind": "turns"}

    async def run(self, chat: Sequence[Message], ask: Ask, *, seed: int) -> Outcome:
        number = int(chat[0]["content"].rpartition("word ")[2].rstrip("?"))
        transcript: list[Message] = []
        for _ in range(number % 4 + 1):
            reply = await ask(Request([*chat, *transcript], 8, seed=seed))
            transcript.append({"role": "assistant", "content": reply.text})
        return Outcome(transcript, "stop", extra={"word": number})

    async def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return load_suite(write_suite(tmp_path_factory.mktemp("suite") / "words", 10))


def samples(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "samples.jsonl").read_bytes().splitlines()]


def test_in_lockstep_every_batch_holds_all_samples_that_want_an_answer(
    suite: Suite, tmp_path: Path
) -> None:
    backend = Counts(lockstep=True)
    run(suite, backend, Turns(), tmp_path, seed=0, about={}, progress=nobody)
    assert [len(batch) for batch in backend.batches] == [4, 3, 2, 1, 4, 3, 2, 1, 2, 1]
    made = samples(tmp_path)
    assert [sample["turns"] for sample in made] == [n % 4 + 1 for n in range(10)]
    assert [sample["extra"]["word"] for sample in made] == list(range(10))
    assert made[3]["tokens"] == {"prompt": 8, "completion": 12}


def test_in_flight_are_as_many_as_may_be_and_the_samples_are_the_same(
    suite: Suite, tmp_path: Path
) -> None:
    backend = Counts(lockstep=False, concurrency=3)
    run(suite, backend, Turns(), tmp_path / "a", seed=0, about={}, progress=nobody)
    assert backend.most == 3
    other = Counts(lockstep=True, concurrency=5)
    run(suite, other, Turns(), tmp_path / "b", seed=0, about={}, progress=nobody)
    assert samples(tmp_path / "a") == samples(tmp_path / "b")


@pytest.mark.parametrize("lockstep", [False, True])
def test_a_backend_that_gives_up_ends_the_run_with_its_own_error(
    suite: Suite, tmp_path: Path, lockstep: bool
) -> None:
    class Gone(Counts):
        async def ask_all(self, requests: Sequence[Request]) -> list[Reply]:
            if self.batches:
                raise HarnessError("unreachable", "gone")
            return await super().ask_all(requests)

    with pytest.raises(HarnessError, match="gone"):
        run(suite, Gone(lockstep=lockstep), Turns(), tmp_path, seed=0, about={}, progress=nobody)
    assert not (tmp_path / "run.json").exists()


def test_the_score_so_far_is_told_with_its_interval(suite: Suite, tmp_path: Path) -> None:
    told: list[tuple[int, str]] = []
    live = Live(suite, lambda label, done, total, unit: told.append((done, unit)))
    right = {"failure": "", "finish": "stop", "transcript": [{"role": "assistant", "content": "w"}]}
    for place in range(4):
        text = f"w{place}" if place < 3 else "no"
        live.add(place, {**right, "transcript": [{"role": "assistant", "content": text}]})
    live.add(4, {"failure": "HTTP 500", "finish": "", "transcript": []})
    live.tell(now=True)
    assert told == [(5, "samples · em 0.75 (0.30–0.95)")]
    live.forget(3)
    live.tell(now=True)
    assert told[-1] == (4, "samples · em 1.00 (0.44–1.00)")


def sample(item: str, category: str, em: float | None, **more: Any) -> dict[str, Any]:
    scores = None if em is None else {"em": em, "f1": em / 2}
    return {"item": item, "category": category, "trial": 0, "scores": scores, **more}


def test_figures_add_up_by_category_and_over_all() -> None:
    tally = Tally(["em", "f1"], "macro")
    for one in (
        sample("a", "nq", 1.0, tier=1, truncated=True, extracted={"em": "x"}),
        sample("a", "nq", 0.0, tier=5, conflict=True, extracted={"em": None}) | {"trial": 1},
        sample("b", "nq", 0.0),
        sample("c", "bamboogle", 1.0, tokens={"prompt": 3, "completion": None}),
        sample("d", "bamboogle", None, failure_kind="no_text"),
        sample("e", "popqa", None),
    ):
        tally.add(one)
    found = tally.figures()
    assert (found["items"], found["trials"], found["samples"], found["n"]) == (5, 2, 6, 4)
    assert found["failure_kinds"] == {"no_text": 1, "unknown": 1}
    assert (found["unextracted"], found["cut_off"], found["conflicts"]) == (1, 1, 1)
    assert found["metrics"]["em"] == {"value": 0.5, "n": 4, "items": 3, "k": 2}
    assert found["metrics"]["f1"] == {"value": 0.25, "n": 4, "items": 3}
    assert found["macro"]["em"] == {"value": pytest.approx((1 / 3 + 1) / 2), "categories": 2}
    assert found["categories"]["popqa"] == {"n": 0, "items": 1, "failures": 1, "metrics": {}}
    assert found["tiers"] == {"1": 1, "5": 1}
    assert found["tokens"] == {"prompt": 3, "completion": 0}


@pytest.mark.parametrize("value", [1.5, -0.1, float("nan")])
def test_a_score_outside_its_range_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not between 0 and 1"):
        Tally(["em"]).add(sample("a", "", value) | {"scores": {"em": value}})


def test_options_change_the_identity_and_nonsense_is_refused(suite: Suite) -> None:
    changes: list[dict[str, Any]] = [
        *({"limit": 3}, {"limit": 3, "sample_seed": 1}, {"trials": 2}, {"temperature": 0.5}),
        {"max_context": 512},
    ]
    digests = {suite.with_options(**change).digest for change in changes}
    assert len(digests | {suite.digest}) == 6
    assert suite.with_options(trials=2).size == 20
    for bad in ({"limit": 0}, {"trials": 0}, {"temperature": -1.0}, {"nudge": True}):
        with pytest.raises(HarnessError) as caught:
            suite.with_options(**bad)  # type: ignore[arg-type]
        assert caught.value.kind == "bad_suite"


def test_a_nudge_is_appended_and_part_of_the_identity(tmp_path: Path) -> None:
    plain = load_suite(write_suite(tmp_path / "words", 2, nudge="Answer in one word."))
    nudged = plain.with_options(nudge=True)
    assert nudged.messages(nudged.items[0])[0]["content"] == (
        plain.messages(plain.items[0])[0]["content"] + "\n\nAnswer in one word."
    )
    assert (plain.identity().get("nudge"), nudged.identity()["nudge"]) == (
        *(None, "Answer in one word."),
    )
    assert nudged.as_asked(nudged.identity()).identity() == nudged.identity()
    assert plain.as_asked(nudged.identity()).identity() == nudged.identity()
