"""Whose run it is: another server, another configuration or other weights are another run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from evaluation_support import cell, first_right
from scripted_server import fails, says, serving

from hubtools.errors import CheckError
from hubtools.evaluation.bridge import evaluate, find_run
from hubtools.evaluation.identity import endpoint_digest, model_files
from hubtools.evaluation.records import read_run
from hubtools.evaluation.spec import SuiteOptions, Target


def ask(words: Path, url: str, out: Path, **more: Any) -> dict[str, Any]:
    return evaluate(cell(words, out, url=url, weights="", **more), log=out / "log")


def test_another_server_is_asked_though_its_model_has_the_same_name(
    words: Path, tmp_path: Path
) -> None:
    with serving(first_right(24)) as (right, _), serving(first_right(0)) as (wrong, requests):
        first = ask(words, right, tmp_path)
        second = ask(words, wrong, tmp_path)
        assert len(requests) == 24
        assert ask(words, right + "/", tmp_path) == first
    values = [read_run(Path(record["path"])).metrics["em"]["value"] for record in (first, second)]
    assert values == [1.0, 0.0]
    assert (first["endpoint"], first["weights"]) == (endpoint_digest(right), "")


def test_an_unfinished_run_does_not_go_on_at_another_server(words: Path, tmp_path: Path) -> None:
    def script(question: str, *_: object) -> Any:
        return fails(401) if "word 9?" in question else first_right(24)(question)

    with serving(script) as (broken, _), serving(first_right(0)) as (wrong, requests):
        with pytest.raises(Exception, match="HT405"):
            ask(words, broken, tmp_path, concurrency=1)
        record = ask(words, wrong, tmp_path)
    assert len(requests) == 24
    assert record["path"] == str(tmp_path / "words" / "2" / "run.json")
    assert record["metrics"]["em"]["value"] == 0.0


def test_a_servers_address_is_known_by_a_digest_without_its_credentials() -> None:
    plain = endpoint_digest("http://host:1/v1")
    assert endpoint_digest("http://user:secret@host:1/v1/") == plain
    assert (
        len({plain, endpoint_digest("http://host:2/v1"), endpoint_digest("http://h/v1?a=1")}) == 3
    )


def test_a_changed_file_beside_the_weights_is_another_run(
    words: Path, tiny_chat: Path, tiny_adapter: Path, tmp_path: Path
) -> None:
    """The finished run is not found once a file that decides answers has changed."""
    model = shutil.copytree(tiny_chat, tmp_path / "model")
    adapter = shutil.copytree(tiny_adapter, tmp_path / "adapter")
    options = SuiteOptions(limit=1)
    wanted = cell(words, tmp_path, model=model, adapter=adapter, options=options)
    record = evaluate(wanted, log=tmp_path / "log")
    assert record["model_files"] == model_files(wanted.target)
    (model / "README.md").write_text("changed")
    assert find_run(wanted) == record
    for file in (
        model / "config.json",
        model / "generation_config.json",
        model / "tokenizer.json",
        adapter / "adapter_config.json",
    ):
        before = file.read_bytes() if file.exists() else b""
        file.write_bytes(before + b"\n")
        assert find_run(wanted) is None, file.name
        file.write_bytes(before) if before else file.unlink()
    assert find_run(wanted) == record


def test_the_same_files_elsewhere_are_the_same_checkpoint(tiny_chat: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny_chat, tmp_path / "copy")
    before = model_files(Target("m", model=copy))
    assert before == model_files(Target("m", model=tiny_chat))
    config = json.loads((copy / "config.json").read_bytes())
    (copy / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    assert model_files(Target("m", model=copy)) != before
    assert model_files(Target("m")) == ""


@pytest.mark.parametrize("changed", [{"system_fingerprint": "fp-2"}, {"model": "other"}])
def test_a_run_does_not_go_on_at_an_address_where_another_model_answers(
    changed: dict[str, str], words: Path, tmp_path: Path
) -> None:
    """The server is begun anew with another model, under the same name and address."""
    down = True

    def script(question: str, *_: object) -> Any:
        if down and "word 9?" in question:
            return fails(401)
        return says("w1", **({} if down else changed))

    with serving(script) as (url, _):
        with pytest.raises(Exception, match="HT405"):
            ask(words, url, tmp_path, concurrency=1)
        down = False
        with pytest.raises(CheckError, match=r"HT407.*another one than gave the answers so far"):
            ask(words, url, tmp_path, concurrency=1)
        assert not list(tmp_path.rglob("run.json"))
        changed = {}
        assert ask(words, url, tmp_path, concurrency=1)["n"] == 24


def test_a_model_that_cannot_be_loaded_names_the_log(
    words: Path, tiny_chat: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(tiny_chat, tmp_path / "model")
    config = json.loads((model / "config.json").read_bytes())
    (model / "config.json").write_text(json.dumps({**config, "model_type": "nothing"}))
    with pytest.raises(CheckError) as caught:
        evaluate(cell(words, tmp_path, model=model), log=tmp_path / "a log")
    assert (caught.value.id, caught.value.next) == ("HT403", f"less '{tmp_path / 'a log'}'")
    assert (tmp_path / "a log").stat().st_size
