from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from scripted_server import fails, says, serving
from tiny_chat import write_suite

from eval_harness.backends.openai import OpenAIBackend
from eval_harness.backends.transformers import TransformersBackend
from eval_harness.errors import HarnessError
from eval_harness.runner import run
from eval_harness.suite import Suite, load_suite


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
) -> bytes:
    out = tmp_path_factory.mktemp("whole")
    run(suite, backend, out, seed=0, about={"who": "tiny"}, progress=nobody)
    return (out / "samples.jsonl").read_bytes()


@pytest.mark.parametrize("share", [0, 0.01, 0.2, 0.36, 0.37, 0.5, 0.73, 0.9, 0.999, 1])
def test_a_run_cut_off_anywhere_ends_in_the_same_bytes(
    suite: Suite, backend: TransformersBackend, whole: bytes, tmp_path: Path, share: float
) -> None:
    (tmp_path / "samples.jsonl").write_bytes(whole[: int(share * len(whole))])
    record = run(suite, backend, tmp_path, seed=0, about={"who": "tiny"}, progress=nobody)
    assert (tmp_path / "samples.jsonl").read_bytes() == whole
    assert record == json.loads((tmp_path / "run.json").read_text())
    assert record["n"] == record["items"] == 11


def test_whole_batches_are_not_asked_again(
    suite: Suite, backend: TransformersBackend, whole: bytes, tmp_path: Path
) -> None:
    lines = whole.splitlines(keepends=True)
    (tmp_path / "samples.jsonl").write_bytes(b"".join(lines[:7]))
    seen: list[int] = []
    run(
        suite,
        backend,
        tmp_path,
        seed=0,
        about={},
        progress=lambda label, done, total, unit: seen.append(done),
    )
    assert seen == [4, 8, 11]


def test_a_killed_process_leaves_a_run_that_goes_on(
    suite: Suite, backend: TransformersBackend, whole: bytes, tiny_chat: Path, tmp_path: Path
) -> None:
    """kill -9 by the process itself, in the middle of writing a batch."""
    out = tmp_path / "run"
    code = f"""
import os, signal
from pathlib import Path
from eval_harness.backends.transformers import TransformersBackend
from eval_harness.runner import run
from eval_harness.suite import load_suite

def progress(label, done, total, unit):
    if done == 8:
        with open({str(out / "samples.jsonl")!r}, "ab") as stream:
            stream.write(b'{{"item": "w-08", "outp')
        os.kill(os.getpid(), signal.SIGKILL)

backend = TransformersBackend(Path({str(tiny_chat)!r}), None, "float32", "cpu", 4)
run(load_suite({str(tmp_path / "words")!r}), backend, Path({str(out)!r}), seed=0,
    about={{"who": "tiny"}}, progress=progress)
"""
    write_suite(tmp_path / "words", 11)
    died = subprocess.run([sys.executable, "-c", code], check=False)
    assert died.returncode == -signal.SIGKILL
    assert not (out / "run.json").exists()
    run(suite, backend, out, seed=0, about={"who": "tiny"}, progress=nobody)
    assert (out / "samples.jsonl").read_bytes() == whole


def test_the_answers_of_another_run_are_not_mixed_in(
    suite: Suite, backend: TransformersBackend, tmp_path: Path
) -> None:
    run(suite, backend, tmp_path, seed=0, about={"who": "a"}, progress=nobody)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for seed, who in ((0, "b"), (1, "a")):
        with pytest.raises(HarnessError) as caught:
            run(suite, backend, tmp_path, seed=seed, about={"who": who}, progress=nobody)
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
        record = run(suite, OpenAIBackend(url, "m"), tmp_path, seed=0, about={}, progress=nobody)
    assert record["metrics"]["em"] == {"value": 3 / 9, "n": 9, "k": 3}
    assert record["metrics"]["f1"] == {"value": pytest.approx((3 + 2 / 3) / 9), "n": 9}
    counts = ("n", "items", "failures", "unextracted", "cut_off")
    assert [record[name] for name in counts] == [9, 11, 2, 1, 1]
    assert record["served"]["model"] == {"served-name": 7, "another": 4}
    assert record["tokens"] == {"prompt": 63, "completion": 27}
    samples = [json.loads(x) for x in (tmp_path / "samples.jsonl").read_bytes().splitlines()]
    assert samples[5]["scores"] is None
    assert samples[5]["failure"] == "content is NoneType, not text"
    assert samples[5]["served"]["response"]["model"] == "served-name"
    assert samples[4]["extracted"] is None
    assert samples[4]["scores"] == {"em": 0.0, "f1": 0.0}


def test_a_run_without_one_answer_has_no_figures(suite: Suite, tmp_path: Path) -> None:
    with serving(lambda *_: fails(400, "no")) as (url, _):
        backend = OpenAIBackend(url, "m")
        with pytest.raises(HarnessError, match="all 11 questions failed: HTTP 400: no") as caught:
            run(suite, backend, tmp_path, seed=0, about={}, progress=nobody)
    assert caught.value.kind == "nothing_scored"
    assert not (tmp_path / "run.json").exists()
    with serving(lambda *_: says("w1")) as (url, _):
        record = run(suite, OpenAIBackend(url, "m"), tmp_path, seed=0, about={}, progress=nobody)
    assert (record["n"], record["failures"]) == (11, 0)


def test_half_a_character_from_a_server_is_kept(suite: Suite, tmp_path: Path) -> None:
    with serving(lambda *_: says("\ud83d w")) as (url, _):
        run(suite, OpenAIBackend(url, "m"), tmp_path, seed=0, about={}, progress=nobody)
    first = json.loads((tmp_path / "samples.jsonl").read_bytes().splitlines()[0])
    assert first["output"] == "\ud83d w"
