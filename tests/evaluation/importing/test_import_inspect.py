from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from import_sources import RECORDED, inspect_log, inspect_sample, take

from hubtools.errors import HubtoolsError


def test_a_real_log_compressed_with_zstd(tmp_path: Path) -> None:
    run = take(RECORDED / "capitals.eval", tmp_path)
    assert run.suite == "inspect_capitals"
    assert run.harness == {"name": "inspect_ai", "version": "0.3.285"}
    assert (run.items, run.trials, run.n, run.cut_off) == (3, 2, 6, 2)
    assert run.metrics["match"]["k"] == 2
    assert run.metrics["closeness"]["value"] == 0.25
    assert run.served == {"model": {"mockllm/model": 6}}
    assert run.tokens == {"prompt": 42, "completion": 12}
    assert run.date == "2026-12-01"
    assert [s["item"] for s in run.iter_samples()] == ["a", "a", "b", "b", "c", "c"]


def test_letters_parts_and_what_the_model_said(tmp_path: Path) -> None:
    samples = [
        inspect_sample("a", "P", attachments={"0a": "a long prompt"}),
        inspect_sample("b", "N"),
    ]
    samples[0]["messages"][0]["content"] = "attachment://0a"
    samples[1]["messages"][1]["content"] = [{"type": "text", "text": "in parts"}]
    for sample in samples:
        sample["scores"]["rubric"] = {"value": {"style": 0.5, "words": 31}}
    log = inspect_log(tmp_path / "log", samples, lambda h: h.pop("results"))
    run = take(log, tmp_path / "out")
    assert {n: m["value"] for n, m in run.metrics.items()} == {"match": 0.25, "rubric.style": 0.5}
    first, second = run.iter_samples()
    assert first["messages"] == [{"role": "user", "content": "a long prompt"}]
    assert (second["output"], second["answers"]) == ("in parts", ["Paris", "paris"])
    assert first["served"] == {"model": "mini-2026"}
    assert first["extracted"] == {"match": "Paris", "rubric.style": None}


def test_an_error_is_a_failure_and_no_zero(tmp_path: Path) -> None:
    broken = inspect_sample("b", "C", error={"message": "sandbox died\n at line 3"})
    broken |= {"scores": {}, "output": {"model": "openai-api/acme/mini", "choices": []}}
    run = take(inspect_log(tmp_path / "log", [inspect_sample("a", "C"), broken]), tmp_path / "out")
    assert (run.n, run.failures, run.failure_kinds) == (1, 1, {"infrastructure": 1})
    assert run.metrics["match"]["value"] == 1
    assert run.served == {"model": {"mini-2026": 1}}
    assert [s["failure"] for s in run.iter_samples()] == ["", "sandbox died"]


def test_shots_in_the_prompt_are_not_the_models_words(tmp_path: Path) -> None:
    shots = [
        {"role": "user", "content": "capital of Italy?"},
        {"role": "assistant", "content": "Rome"},
        {"role": "user", "content": "capital of France?"},
    ]
    said = {"role": "assistant", "content": "Paris"}
    samples = [
        inspect_sample("a", "C", input=shots, messages=[*shots, said]),
        inspect_sample("b", "I"),
    ]
    run = take(inspect_log(tmp_path / "log", samples), tmp_path / "out")
    first = next(run.iter_samples())
    assert (first["messages"], first["transcript"]) == (shots, [said])


@pytest.mark.parametrize("status", ["started", "cancelled", "error", None])
def test_a_run_that_did_not_end_is_refused(tmp_path: Path, status: str | None) -> None:
    samples = [inspect_sample("a", "C"), inspect_sample("b", "I")]
    log = inspect_log(tmp_path / "log", samples, lambda h: h.update(status=status))
    with pytest.raises(HubtoolsError, match="HT463"):
        take(log, tmp_path / "out")


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        ([inspect_sample("a", "C")], "1 samples are there, 2 were asked for"),
        ([inspect_sample("a", "C"), inspect_sample("z", "C")], "samples are there"),
        ([inspect_sample("a", "C"), inspect_sample("b", "C")], "it states match 0.5"),
    ],
)
def test_samples_are_those_of_the_header(
    tmp_path: Path, samples: list[dict[str, Any]], why: str
) -> None:
    with pytest.raises(HubtoolsError, match=rf"HT463.*{why}"):
        take(inspect_log(tmp_path / "log", samples), tmp_path / "out")


def test_a_log_without_header_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with zipfile.ZipFile(path, "w") as log:
        log.writestr("_journal/start.json", "{}")
    with pytest.raises(HubtoolsError, match="HT463"):
        take(path, tmp_path / "out")


def test_a_zip_made_to_burst_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as log:
        log.writestr("header.json", json.dumps({}))
        log.writestr("samples/a_epoch_1.json", b"0" * (100 << 20))
    data = bytearray(path.read_bytes())
    with pytest.raises(HubtoolsError, match="HT461"):
        take(path, tmp_path / "out")
    at = data.rindex(b"samples/a_epoch_1.json") - 22  # uncompressed size in the central directory
    assert int.from_bytes(data[at : at + 4], "little") == 100 << 20
    data[at : at + 4] = (4).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(HubtoolsError, match="HT461"):
        take(path, tmp_path / "out")


def test_names_that_leave_the_folder_write_nothing(tmp_path: Path) -> None:
    samples = [inspect_sample("a", "C"), inspect_sample("b", "I")]
    log = inspect_log(tmp_path / "log", samples)
    with zipfile.ZipFile(log, "a") as more:
        more.writestr("../../escaped.json", "{}")
        more.writestr("/escaped.json", "{}")
    take(log, tmp_path / "out")
    assert not list(tmp_path.parent.rglob("escaped.json"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data, at: data[: len(data) // 2],
        lambda data, at: data[: at + 60] + bytes(40) + data[at + 100 :],
        lambda data, at: data[: at - 30] + b"\xff" * 9 + data[at - 21 :],
    ],
)
def test_damage_is_told(tmp_path: Path, damage: Callable[[bytes, int], bytes]) -> None:
    path, data = tmp_path / "capitals.eval", (RECORDED / "capitals.eval").read_bytes()
    path.write_bytes(damage(data, data.index(b"samples/b_epoch_1.json")))
    with pytest.raises(HubtoolsError, match="HT461"):
        take(path, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("run.json"))
