from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from scripted_server import fails, says, serving
from tiny_chat import write_suite

from eval_harness.agents.single import SingleAgent
from eval_harness.backends.openai import OpenAIBackend
from eval_harness.backends.transformers import TransformersBackend
from eval_harness.chat import Reply, Request
from eval_harness.errors import HarnessError
from eval_harness.journal import NAME as RESPONSES
from eval_harness.journal import Codec, frame_ends
from eval_harness.record import SAMPLES
from eval_harness.runner import run
from eval_harness.suite import Suite, load_suite
from eval_harness.suite_model import Sampling

SINGLE = SingleAgent(Sampling(8))


def nobody(label: str, done: int, total: int | None, unit: str) -> None:
    pass


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return load_suite(write_suite(tmp_path_factory.mktemp("suite") / "words", 11))


@pytest.fixture(scope="module")
def backend(tiny_chat: Path) -> TransformersBackend:
    return TransformersBackend(tiny_chat, None, "float32", "cpu", 4)


@pytest.fixture(scope="module")
def whole(
    suite: Suite, backend: TransformersBackend, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("whole")
    run(suite, backend, SINGLE, out, seed=0, about={"who": "tiny"}, progress=nobody)
    return out


@pytest.mark.parametrize("share", [0, 0.01, 0.2, 0.36, 0.37, 0.5, 0.73, 0.9, 0.999, 1])
def test_a_run_cut_off_anywhere_ends_in_the_same_bytes(
    suite: Suite, backend: TransformersBackend, whole: Path, tmp_path: Path, share: float
) -> None:
    raw = (whole / RESPONSES).read_bytes()
    (tmp_path / RESPONSES).write_bytes(raw[: int(share * len(raw))])
    record = run(suite, backend, SINGLE, tmp_path, seed=0, about={"who": "tiny"}, progress=nobody)
    assert (tmp_path / SAMPLES).read_bytes() == (whole / SAMPLES).read_bytes()
    assert record == json.loads((tmp_path / "run.json").read_text())
    assert record["n"] == record["items"] == record["samples"] == 11


def test_whole_waves_are_not_asked_again(
    suite: Suite, backend: TransformersBackend, whole: Path, tmp_path: Path
) -> None:
    raw = (whole / RESPONSES).read_bytes()
    (tmp_path / RESPONSES).write_bytes(raw[: list(frame_ends(raw))[6]])
    asked: list[int] = []

    class Counting(TransformersBackend):
        async def ask_all(self, requests: Sequence[Request]) -> list[Reply]:
            asked.append(len(requests))
            return await super().ask_all(requests)

    counting = object.__new__(Counting)
    counting.__dict__ |= backend.__dict__
    run(suite, counting, SINGLE, tmp_path, seed=0, about={}, progress=nobody)
    assert asked == [4, 3]


def test_the_answers_of_another_run_are_not_mixed_in(
    suite: Suite, backend: TransformersBackend, tmp_path: Path
) -> None:
    run(suite, backend, SINGLE, tmp_path, seed=0, about={"who": "a"}, progress=nobody)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for seed, who in ((0, "b"), (1, "a")):
        with pytest.raises(HarnessError) as caught:
            run(suite, backend, SINGLE, tmp_path, seed=seed, about={"who": who}, progress=nobody)
        assert caught.value.kind == "other_run"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_figures_of_known_answers_and_failures_counted_apart(suite: Suite, tmp_path: Path) -> None:
    def script(question: str, attempt: int, headers: dict):  # type: ignore[no-untyped-def]
        number = question.rpartition("word ")[2].rstrip("?")
        if number in "012":
            return says(f"It is w{number}.")
        if number == "3":
            return says("w3 w4")
        if number == "4":
            return says("<think>w4", choices=[{"message": {"content": "<think>w4"},
                        "finish_reason": "length"}])  # fmt: skip
        return says(None) if number in "56" else says("no", model="another")

    with serving(script) as (url, _):
        record = run(
            suite, OpenAIBackend(url, "m"), SINGLE, tmp_path, seed=0, about={}, progress=nobody
        )
    assert record["metrics"]["em"] == {"value": 3 / 9, "n": 9, "items": 9, "k": 3}
    assert record["metrics"]["f1"] == {
        **{"value": pytest.approx((3 + 2 / 3) / 9), "n": 9, "items": 9}
    }
    counts = ("n", "items", "failures", "unextracted", "cut_off")
    assert [record[name] for name in counts] == [9, 11, 2, 1, 1]
    assert record["served"]["model"] == {"served-name": 7, "another": 4}
    assert record["tokens"] == {"prompt": 63, "completion": 27}
    samples = [json.loads(x) for x in (tmp_path / "samples.jsonl").read_bytes().splitlines()]
    assert samples[5]["scores"] is None
    assert samples[5]["failure"] == "content is NoneType, not text"
    assert samples[5]["failure_kind"] == "no_text"
    assert samples[5]["served"] == {"model": "served-name", "fingerprint": "fp-1"}
    assert samples[4]["extracted"] == {"em": None, "f1": None}
    assert samples[4]["scores"] == {"em": 0.0, "f1": 0.0}


def test_a_run_without_one_answer_has_no_figures(suite: Suite, tmp_path: Path) -> None:
    with serving(lambda *_: fails(400, "no")) as (url, _):
        backend = OpenAIBackend(url, "m")
        with pytest.raises(HarnessError, match="all 11 questions failed: HTTP 400: no") as caught:
            run(suite, backend, SINGLE, tmp_path, seed=0, about={}, progress=nobody)
    assert caught.value.kind == "nothing_scored"
    assert not (tmp_path / "run.json").exists()
    with serving(lambda *_: says("w1")) as (url, _):
        record = run(
            suite, OpenAIBackend(url, "m"), SINGLE, tmp_path, seed=0, about={}, progress=nobody
        )
    assert (record["n"], record["failures"]) == (11, 0)


def test_half_a_character_from_a_server_is_kept(suite: Suite, tmp_path: Path) -> None:
    with serving(lambda *_: says("\ud83d w")) as (url, _):
        run(suite, OpenAIBackend(url, "m"), SINGLE, tmp_path, seed=0, about={}, progress=nobody)
    first = json.loads((tmp_path / "samples.jsonl").read_bytes().splitlines()[0])
    assert first["output"] == "\ud83d w"


def test_an_entry_without_an_outcome_is_asked_again_and_the_record_says_so(
    suite: Suite, tmp_path: Path
) -> None:
    with serving(lambda *_: says("w1")) as (url, requests):
        backend = OpenAIBackend(url, "m")
        run(suite, backend, SINGLE, tmp_path, seed=0, about={}, progress=nobody)
        (tmp_path / "run.json").unlink()
        raw = (tmp_path / RESPONSES).read_bytes()
        first, second, *_ = frame_ends(raw)
        odd = Codec().encode({"item": "w-01", "trial": 0})
        (tmp_path / RESPONSES).write_bytes(raw[:first] + odd + raw[second:])
        record = run(suite, backend, SINGLE, tmp_path, seed=0, about={}, progress=nobody)
    assert len(requests) == 12
    assert (record["n"], record["damaged_responses"]) == (11, 1)
