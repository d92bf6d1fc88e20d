from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from evaluation_support import cell, first_right
from scripted_server import fails, says, serving
from tiny_chat import write_suite

from eval_harness.journal import frame_ends
from hubtools.digests import sha256_file, weights_digest
from hubtools.errors import AuthError, CheckError, EnvironmentFailure, HubtoolsError, UsageError
from hubtools.evaluation.bridge import (
    chat_template_digest,
    evaluate,
    model_weights,
    planned_protocol,
)
from hubtools.evaluation.records import read_run


def run(suite: Path | str, model: Path | None, out: Path, **more: Any) -> dict[str, Any]:
    how = {name: more.pop(name) for name in ("again", "retry_failed") if name in more}
    return evaluate(cell(suite, out, model=model, **more), log=out / "log", **how)


def ask(suite: Path | str, url: str, out: Path, **more: Any) -> dict[str, Any]:
    return run(suite, None, out, url=url, **more)


@pytest.fixture(scope="module")
def in_process(
    words: Path, tiny_chat: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("in-process")
    return out, run(words, tiny_chat, out)


def test_a_model_is_run_and_found_again(
    words: Path, tiny_chat: Path, in_process: tuple[Path, dict[str, Any]]
) -> None:
    out, record = in_process
    assert record["path"] == str(out / "words" / "1" / "run.json")
    assert run(words, tiny_chat, out) == record
    assert sorted(path.name for path in (out / "words").iterdir()) == [".lock", "1"]
    found = read_run(Path(record["path"]))
    planned = planned_protocol(cell(words, out, model=tiny_chat))
    assert found.protocol == planned
    assert record["engine"]["dtype"] == "float32"
    assert record["engine"]["versions"]["torch"] == planned["engine"]["torch"]
    assert "path" not in json.loads(Path(record["path"]).read_bytes())


def test_with_an_adapter_the_answers_are_others_under_the_same_protocol(
    words: Path, tiny_chat: Path, tiny_adapter: Path, in_process: tuple[Path, dict[str, Any]]
) -> None:
    out, record = in_process
    tuned = run(words, tiny_chat, out, adapter=tiny_adapter, weights="cd" * 32)
    assert tuned["path"] == str(out / "words" / "2" / "run.json")
    assert tuned["samples_sha256"] != record["samples_sha256"]
    assert tuned["protocol_id"] == record["protocol_id"]


def test_again_adds_a_run_and_leaves_the_first(words: Path, tmp_path: Path) -> None:
    with serving(first_right(3)) as (url, _):
        first = ask(words, url, tmp_path)
        kept = Path(first["path"]).read_bytes()
        second = ask(words, url, tmp_path, again=True)
        assert second["path"] == str(tmp_path / "words" / "2" / "run.json")
        assert ask(words, url, tmp_path)["path"] == second["path"]
    assert Path(first["path"]).read_bytes() == kept


def test_another_seed_member_digest_or_suite_is_another_run(words: Path, tmp_path: Path) -> None:
    with serving(first_right(3)) as (url, requests):
        first = ask(words, url, tmp_path)
        assert ask(words, url, tmp_path) == first
        assert len(requests) == 24
        for number, change in enumerate(({"seed": 1}, {"member": "n"}, {"weights": "00"}), start=2):
            record = ask(words, url, tmp_path, **change)
            assert record["path"] == str(tmp_path / "words" / str(number) / "run.json")
        longer = write_suite(tmp_path / "more" / "words", 25)
        assert ask(longer, url, tmp_path)["path"].endswith("words/5/run.json")


def test_what_was_served_is_recorded_beside_what_was_asked_for(words: Path, tmp_path: Path) -> None:
    with serving(first_right(3)) as (url, _):
        record = ask(words, url, tmp_path, served_name="wanted")
    assert record["requested"] == record["engine"]["requested"] == "wanted"
    assert record["served"]["model"] == {"served-name": 24}
    assert record["served"]["fingerprint"] == {"fp-1": 24}
    assert record["protocol"]["dtype"] == record["protocol"]["device"] == "server"


def test_a_killed_group_leaves_a_run_that_the_same_call_finishes(
    words: Path, tmp_path: Path
) -> None:
    """kill -9 of caller and child together, while answers are coming."""
    out = tmp_path / "runs"
    reached = threading.Event()

    def script(question: str, *_: object):  # type: ignore[no-untyped-def]
        if "word 12" in question:
            reached.set()
            time.sleep(0.3)
        return says("w1")

    with serving(script) as (url, requests):
        wanted = cell(words, out, url=url, concurrency=4)
        code = (
            "from pathlib import Path; from hubtools.evaluation.bridge import evaluate;"
            "from hubtools.evaluation.spec import cell_from_json;"
            f"evaluate(cell_from_json({wanted.to_json()!r}), log=Path({str(out / 'log')!r}))"
        )
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        assert reached.wait(60)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        assert not (out / "words" / "1" / "run.json").exists()
        raw = (out / "words" / "1" / "responses.jsonl.zst").read_bytes()
        before = len(list(frame_ends(raw)))
        asked = len(requests)
        record = ask(words, url, out, concurrency=4)
        assert record["path"] == str(out / "words" / "1" / "run.json")
        assert 8 <= before <= 12
        assert len(requests) - asked == 24 - before
    assert read_run(out / "words" / "1").n == 24


def test_two_at_once_do_not_write_into_each_other(words: Path, tmp_path: Path) -> None:
    errors: list[HubtoolsError] = []
    inside = threading.Event()

    def script(question: str, *_: object):  # type: ignore[no-untyped-def]
        inside.set()
        time.sleep(0.05)
        return says("w1")

    with serving(script) as (url, _):
        first = threading.Thread(target=ask, args=(words, url, tmp_path))
        first.start()
        assert inside.wait(60)
        with pytest.raises(EnvironmentFailure) as caught:
            ask(words, url, tmp_path)
        errors.append(caught.value)
        first.join()
    assert errors[0].id == "HT903"
    assert read_run(tmp_path / "words" / "1").n == 24


@pytest.mark.parametrize(
    ("suite", "more", "id"),
    [
        ("short_q", {}, "HT401"),
        ("short_qa", {"dtype": "int8"}, "HT413"),
    ],
)
def test_wishes_that_cannot_be_met_change_nothing(
    tmp_path: Path, suite: str, more: dict[str, Any], id: str
) -> None:
    with pytest.raises(UsageError) as caught:
        run(suite, tmp_path, tmp_path / "out", **more)
    assert caught.value.id == id
    assert caught.value.next
    assert list(tmp_path.iterdir()) == []


def test_a_suite_with_a_mistake_is_named(tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "words", 3, scorers=["rouge/1"])
    with pytest.raises(UsageError, match=r"HT402.*unknown scorer 'rouge/1'"):
        planned_protocol(cell(folder, tmp_path))


def test_a_model_that_does_not_load(words: Path, tiny_chat: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tiny_chat, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CheckError) as caught:
        run(words, broken, tmp_path / "out")
    assert caught.value.id == "HT403"
    assert caught.value.where == str(broken)


def test_servers_that_are_gone_refuse_or_fail(words: Path, tmp_path: Path) -> None:
    with serving(lambda *_: fails(401, "no key")) as (url, _), pytest.raises(AuthError) as refused:
        ask(words, url, tmp_path / "a")
    assert (refused.value.id, refused.value.exit_code) == ("HT405", 4)
    with serving(lambda *_: fails(400, "no")) as (url, _), pytest.raises(CheckError) as failed:
        ask(words, url, tmp_path / "b")
    assert failed.value.id == "HT406"
    with (
        serving(lambda *_: fails(404, "no")) as (url, _),
        pytest.raises(EnvironmentFailure) as gone,
    ):
        ask(words, url, tmp_path / "c")
    assert gone.value.id == "HT404"


def test_a_key_never_reaches_a_file(
    words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")

    def script(question: str, attempt: int, headers: dict):  # type: ignore[no-untyped-def]
        key = headers["Authorization"]
        return fails(400, f"bad: {key}") if "word 3" in question else says("w1")

    with serving(script) as (url, _):
        record = ask(words, url.replace("//", "//user:pw@"), tmp_path, api_key_env="MY_KEY")
    assert record["failures"] == 1
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"sk-very-secret" not in path.read_bytes(), path
            assert b"user:pw" not in path.read_bytes(), path


def test_a_place_that_cannot_be_written(words: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file where the folder of runs should be")
    with pytest.raises(EnvironmentFailure) as caught:
        run(words, tmp_path, tmp_path / "out")
    assert caught.value.id == "HT901"


def test_a_full_disk_is_said_and_what_was_answered_is_kept(words: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: the child's write fails half way."""
    with serving(first_right(3)) as (url, requests):
        wanted = cell(words, tmp_path, url=url, concurrency=4)
        code = f"""
import resource, signal
from pathlib import Path
from hubtools.errors import HubtoolsError
from hubtools.evaluation.bridge import evaluate
from hubtools.evaluation.spec import cell_from_json

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (9000, resource.RLIM_INFINITY))
try:
    evaluate(cell_from_json({wanted.to_json()!r}), log=Path({str(tmp_path / "log")!r}))
except HubtoolsError as error:
    print(error.id, error.message)
"""
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert done.stdout == "HT901 cannot write: file size limit reached\n", done.stderr
        asked = len(requests)
        ask(words, url, tmp_path, concurrency=4)
        assert 0 < len(requests) - asked < 24
    assert read_run(tmp_path / "words" / "1").n == 24


def test_digests_of_weights_and_template(
    tiny_chat: Path, tiny_adapter: Path, tmp_path: Path
) -> None:
    model = sha256_file(tiny_chat / "model.safetensors")
    adapter = sha256_file(tiny_adapter / "adapter_model.safetensors")
    assert model_weights(tiny_chat) == weights_digest({"model.safetensors": model})
    assert model_weights(tiny_chat, tiny_adapter) == weights_digest(
        {"model.safetensors": model, "adapter/adapter_model.safetensors": adapter}
    )
    with pytest.raises(CheckError, match="HT409"):
        model_weights(tmp_path)
    assert chat_template_digest(tiny_chat) == sha256_file(tiny_chat / "chat_template.jinja")
    assert chat_template_digest(tmp_path) == "none"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ x }}"}))
    inline = chat_template_digest(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ y }}"}))
    assert len({inline, chat_template_digest(tmp_path), "none"}) == 3
