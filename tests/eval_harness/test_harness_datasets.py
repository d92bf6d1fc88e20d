from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd, HfApi

from eval_harness.datasets import Loaded, load_records, misnamed
from eval_harness.errors import HarnessError
from eval_harness.pins import pin
from hubtools.localhub.server import LocalHub, running

REPO = "RUC-NLPIR/FlashRAG_datasets"
QUESTIONS = {
    "nq/test.jsonl": [("who wrote Ulysses", ["James Joyce", "Joyce"]), ("how many?", ["3"])],
    "bamboogle/test.jsonl": [("What is it?", ["that"])],
}
FILES = {
    name: "".join(
        json.dumps({"id": f"test_{n}", "question": q, "golden_answers": a, "metadata": {}}) + "\n"
        for n, (q, a) in enumerate(pairs)
    ).encode()
    for name, pairs in QUESTIONS.items()
}
DIGESTS = {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHub]:
    """The embedded Hub, over HTTP, with a small dataset under the real one's name."""
    folder = tmp_path_factory.mktemp("hub")
    with running(folder / "root", log=folder / "log") as hub:
        api = HfApi(endpoint=hub.url, token=hub.token)
        api.create_repo(REPO, repo_type="dataset")
        for name, data in FILES.items():
            commit(hub, name, data)
        yield hub


def commit(hub: LocalHub, name: str, data: bytes) -> str:
    api = HfApi(endpoint=hub.url, token=hub.token)
    made = api.create_commit(
        REPO, [CommitOperationAdd(name, data)], commit_message=name, repo_type="dataset"
    )
    return str(made.oid)


def head(hub: LocalHub) -> str:
    return str(HfApi(endpoint=hub.url).dataset_info(REPO).sha)


def table(revision: str, **digests: str) -> dict[str, Any]:
    parts = [
        {"category": "nq", "file": "nq/test.jsonl", "n": 2, "domain": "in", "sha256": ""},
        {"category": "bamboogle", "file": "bamboogle/test.jsonl", "n": 1, "domain": "out"},
    ]
    made = [{**part, "sha256": digests.get(str(part["category"]), "")} for part in parts]
    return {"repo": REPO, "revision": revision, "parts": made}


def pinned(revision: str) -> dict[str, Any]:
    nq, bamboogle = DIGESTS.values()
    return table(revision, nq=nq, bamboogle=bamboogle)


def load(dataset: dict[str, Any], hub: LocalHub, pins: Path, **more: Any) -> Loaded:
    return load_records(dataset, endpoint=hub.url, pins=pins, **more)


def suite(folder: Path, dataset: dict[str, Any]) -> Path:
    lines = ["schema = 2", "[dataset]"]
    lines += [f"{key} = {json.dumps(dataset[key])}" for key in ("repo", "revision")]
    for part in dataset["parts"]:
        lines += ["[[dataset.parts]]", *(f"{key} = {json.dumps(part[key])}" for key in part)]
    path = folder / "suite.toml"
    path.write_text("\n".join(lines))
    return path


def test_pinned_data_have_the_benchmarks_names(hub: LocalHub, tmp_path: Path) -> None:
    loaded = load(pinned(head(hub)), hub, tmp_path / "none.json")
    assert loaded.records[0] == {
        "id": "nq/test_0",
        "category": "nq",
        "question": "who wrote Ulysses?",
        "context": "",
        "answers": ["James Joyce", "Joyce"],
    }
    assert [record["id"] for record in loaded.records[1:]] == ["nq/test_1", "bamboogle/test_0"]
    assert loaded.parts["nq"] == {
        **{"repo": REPO, "revision": head(hub), "file": "nq/test.jsonl"},
        **{"sha256": DIGESTS["nq/test.jsonl"], "n": 2, "domain": "in", "pinned": True},
    }


def test_what_nobody_pinned_needs_consent_and_another_name(hub: LocalHub, tmp_path: Path) -> None:
    dataset = table(head(hub), nq=DIGESTS["nq/test.jsonl"])
    with pytest.raises(HarnessError, match="bamboogle are not pinned") as caught:
        load(dataset, hub, tmp_path / "none.json")
    assert caught.value.kind == "unpinned"
    loaded = load(dataset, hub, tmp_path / "none.json", accept_unpinned=True)
    assert list(loaded.parts) == ["nq", "bamboogle (unpinned)"]
    assert loaded.records[-1]["category"] == "bamboogle (unpinned)"
    assert not loaded.parts["bamboogle (unpinned)"]["pinned"]
    assert loaded.sha256 != load(pinned(head(hub)), hub, tmp_path / "none.json").sha256


def test_a_users_pin_counts_where_the_suite_has_none(hub: LocalHub, tmp_path: Path) -> None:
    pins, commit_id = tmp_path / "sub" / "pins.json", head(hub)
    made = pin(suite(tmp_path, table("main")), pins=pins, endpoint=hub.url)
    assert (made["revision"], made["repo"]) == (commit_id, REPO)
    assert made["pins"]["nq"] == {
        **{"file": "nq/test.jsonl", "n": 2, "sha256": DIGESTS["nq/test.jsonl"]}
    }
    loaded = load(table("main"), hub, pins)
    assert loaded.parts["nq"]["revision"] == commit_id
    assert loaded.sha256 == load(pinned(commit_id), hub, tmp_path / "none.json").sha256
    wrong = table(commit_id, nq="0" * 64)
    with pytest.raises(HarnessError, match="not the pinned 000"):
        load(wrong, hub, pins)


def test_a_benchmarks_name_needs_the_benchmarks_data(hub: LocalHub, tmp_path: Path) -> None:
    none, dataset = tmp_path / "none.json", pinned(head(hub))
    found = load(dataset, hub, none).parts
    loose = load(table(head(hub)), hub, none, accept_unpinned=True).parts
    assert misnamed(dataset, found, none) == misnamed(dataset, loose, none) == ""
    assert misnamed(table("main"), found, none) == ""
    renamed = {"nq": loose["nq (unpinned)"]}
    assert misnamed(dataset, renamed, none) == "nobody has pinned the data of nq"
    other = {"nq": {**found["nq"], "sha256": "0" * 64}}
    assert "not the pinned" in misnamed(dataset, other, none)
    assert misnamed(dataset, {"squad": found["nq"]}, none) == "squad is no part of this suite"
    pins = tmp_path / "pins.json"
    pin(suite(tmp_path, table("main")), pins=pins, endpoint=hub.url)
    assert "not the pinned" in misnamed(table("main"), other, pins)


def test_other_data_are_refused(hub: LocalHub, tmp_path: Path) -> None:
    good = head(hub)
    try:
        changed = commit(hub, "nq/test.jsonl", FILES["nq/test.jsonl"].replace(b"Ulysses", b"Emma"))
        with pytest.raises(HarnessError, match="not the pinned") as caught:
            load(pinned(changed), hub, tmp_path / "none.json")
        assert caught.value.kind == "bad_dataset"
        shorter = commit(hub, "nq/test.jsonl", FILES["nq/test.jsonl"].splitlines()[0])
        pins = tmp_path / "pins.json"
        with pytest.raises(HarnessError, match="1 questions, not 2"):
            pin(suite(tmp_path, table(shorter)), pins=pins, endpoint=hub.url)
        assert not pins.exists()
        broken = commit(hub, "nq/test.jsonl", b'{"id": 1, "question": "x"}\n')
        with pytest.raises(HarnessError, match="line 1 is no question") as caught:
            load(table(broken), hub, pins, accept_unpinned=True)
        assert caught.value.where.endswith("test.jsonl:1")
        letters = b'{"id": 1, "question": "x", "golden_answers": "Paris"}\n'
        with pytest.raises(HarnessError, match="golden_answers is 'Paris', not a list of texts"):
            load(table(commit(hub, "nq/test.jsonl", letters)), hub, pins, accept_unpinned=True)
    finally:
        commit(hub, "nq/test.jsonl", FILES["nq/test.jsonl"])
    assert load(pinned(good), hub, tmp_path / "none.json").parts["nq"]["revision"] == good


@pytest.mark.parametrize("revision", ["0" * 40, "no-such-branch"])
def test_what_cannot_be_had_is_said(hub: LocalHub, tmp_path: Path, revision: str) -> None:
    with pytest.raises(HarnessError, match="cannot be had") as caught:
        load(pinned(revision), hub, tmp_path / "none.json")
    assert caught.value.where == f"{REPO}@{revision}"
    if revision != "0" * 40:
        with pytest.raises(HarnessError, match="cannot be found"):
            pin(suite(tmp_path, table(revision)), pins=tmp_path / "p.json", endpoint=hub.url)


def test_without_a_hub_the_cache_serves_a_commit(hub: LocalHub, tmp_path: Path) -> None:
    dataset = pinned(head(hub))
    expected = load(dataset, hub, tmp_path / "none.json")
    gone = load_records(dataset, endpoint="http://127.0.0.1:9", pins=tmp_path / "none.json")
    assert gone == expected


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"a": {"b": {"sha256": "1", "revision": "2"}}}', '{"a": {"b": {}}}', '{"a": 1}'],
)
def test_damaged_pins_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pins.json"
    path.write_text(text)
    with pytest.raises(HarnessError, match="pins are damaged") as caught:
        load_records(table("main"), pins=path)
    assert caught.value.where == str(path)


def test_a_suite_with_questions_of_its_own_has_nothing_to_pin(tmp_path: Path) -> None:
    path = tmp_path / "suite.toml"
    path.write_text("schema = 2\n")
    with pytest.raises(HarnessError, match="nothing to pin"):
        pin(path)
