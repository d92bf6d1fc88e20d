from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubtools.digests import DigestCache, sha256_bytes
from hubtools.errors import Finding
from hubtools.release.journal import Journal
from hubtools.release.plan import Cell, Plan, RepoChange, differences
from hubtools.release.store import Record, Store, stage_key

INPUTS = {"files": {"a": "1"}, "seed": 3}


def record(**changes: object) -> Record:
    fields = {"stage": "merge", "version": 1, "target": "a/b", "inputs": INPUTS, **changes}
    key = stage_key(**fields)  # type: ignore[arg-type]
    return Record(key=key, outputs={"x": 1}, **fields)  # type: ignore[arg-type]


def test_a_record_comes_back(tmp_path: Path) -> None:
    store = Store(tmp_path)
    kept = record()
    store.put(kept)
    assert store.get("merge", kept.key) == kept
    assert list(store.keys()) == [("merge", kept.key)]


@pytest.mark.parametrize("field", ["stage", "version", "target", "inputs"])
def test_every_part_of_the_key_changes_it(field: str) -> None:
    changed = {"stage": "seal", "version": 2, "target": "a/c", "inputs": {**INPUTS, "seed": 4}}
    assert record().key != record(**{field: changed[field]}).key


def test_a_truncated_or_altered_record_counts_as_absent(tmp_path: Path) -> None:
    store = Store(tmp_path)
    kept = record()
    store.put(kept)
    file = store.path("merge", kept.key)
    whole = file.read_bytes()
    for length in range(0, len(whole) - 2, 7):
        file.write_bytes(whole[:length])
        assert store.get("merge", kept.key) is None
    file.write_bytes(whole.replace(b'"seed": 3', b'"seed": 4'))
    assert store.get("merge", kept.key) is None
    for other in (b"\xff\x00[]", b"[" * 100_000, whole.replace(b'"x": 1', b"")):
        file.write_bytes(other)
        assert store.get("merge", kept.key) is None
    file.unlink()
    file.mkdir()
    assert store.get("merge", kept.key) is None


@pytest.mark.parametrize("kept", [b"[" * 100_000, b'{"a": 5, "b": [1, 2]}', b"[]", b"\xff", None])
def test_a_digest_cache_that_is_no_cache_costs_only_time(
    tmp_path: Path, kept: bytes | None
) -> None:
    file, place = tmp_path / "weights", tmp_path / "digests.json"
    file.write_bytes(b"w")
    if kept is None:
        place.mkdir()
    else:
        place.write_bytes(kept.replace(b'"b"', json.dumps(str(file)).encode()))
    cache = DigestCache(place)
    assert cache.sha256(file) == sha256_bytes(b"w")
    cache.save()
    assert DigestCache(place).sha256(file) == sha256_bytes(b"w")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values))
def test_keys_do_not_depend_on_the_order_of_fields(inputs: dict[str, object]) -> None:
    reversed_inputs = dict(reversed(inputs.items()))
    assert stage_key("s", 1, "t", inputs) == stage_key("s", 1, "t", reversed_inputs)


def test_the_journal_is_on_disk_before_anyone_hears_of_an_event(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "journal.jsonl"
    seen: list[int] = []
    journal = Journal(file, lambda: 5.25, lambda event, target: seen.append(len(lines(file))))
    journal.write("started", "a/b", stage="merge")
    journal.write("finished", "a/b")
    assert seen == [1, 2]
    assert lines(file)[0] == {"time": 5.25, "event": "started", "target": "a/b", "stage": "merge"}


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def plan(**changes: object) -> Plan:
    fields: dict[str, object] = {
        "family": "f",
        "hub": "local",
        "targets": ("a/b",),
        "cells": (Cell("merge", "a/b", "cached", key="1"),),
        "repos": (RepoChange("o/n", "a/b", "update", head="c1", add=1, send=5),),
    }
    return Plan(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_saved_plan_holds_until_something_it_says_changes() -> None:
    saved = json.loads(json.dumps(plan().to_json()))
    assert differences(saved, plan()) == []
    moved = plan(repos=(RepoChange("o/n", "a/b", "update", head="c2", add=1, send=5),))
    assert differences(saved, moved) == ["o/n: head changed"]
    rekeyed = plan(cells=(Cell("merge", "a/b", "run", key="2"),))
    assert differences(saved, rekeyed) == ["merge a/b: action, key changed"]
    assert plan().id != moved.id


def test_a_plan_is_pending_until_everything_is_cached_and_in_sync() -> None:
    assert plan().pending
    done = plan(repos=(RepoChange("o/n", "a/b", "in sync"),))
    assert not done.pending
    assert plan(cells=(Cell("merge", "a/b", "waits", "for verify"),)).pending


def test_only_error_findings_stop() -> None:
    found = (Finding("HT513", "warning", "w"), Finding("HT514", "error", "e"))
    assert [finding.id for finding in plan(findings=found).errors()] == ["HT514"]
