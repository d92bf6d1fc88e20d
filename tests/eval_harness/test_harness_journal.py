from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_harness.journal import Codec, Journal, frame_ends

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ENTRIES = st.dictionaries(st.text(), JSON, max_size=4)
encode, decode = Codec().encode, Codec().decode
ITEMS = ["a", "b", "c"]
OUTCOME = {
    "transcript": [{"role": "assistant", "content": "x"}],
    **{"failure": "", "failure_kind": "", "finish": "stop"},
}


def entry(item: str, trial: int, **more: object) -> dict[str, object]:
    return {"item": item, "trial": trial, "outcome": OUTCOME, **more}


def written(path: Path) -> list[tuple[int, dict]]:
    with Journal(path, ITEMS, 2) as journal:
        return list(journal.recover())


@settings(deadline=None, max_examples=50)
@given(ENTRIES)
def test_what_is_written_is_read(data: dict) -> None:
    assert decode(encode(data)) == data


def test_numbers_that_json_does_not_have_become_text() -> None:
    assert decode(encode({"a": [float("-inf"), 1.5]})) == {"a": ["-Infinity", 1.5]}


def test_half_a_character_is_kept() -> None:
    assert decode(encode({"text": "\ud83d"})) == {"text": "\ud83d"}


@settings(deadline=None, max_examples=50)
@given(st.lists(ENTRIES, max_size=5), st.data())
def test_a_cut_anywhere_leaves_the_frames_before_it(entries: list, data: st.DataObject) -> None:
    frames = [encode(one) for one in entries]
    raw = b"".join(frames)
    cut = data.draw(st.integers(0, len(raw)))
    ends = list(frame_ends(raw[:cut]))
    whole = [sum(map(len, frames[: n + 1])) for n in range(len(frames))]
    assert ends == [end for end in whole if end <= cut]


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=200))
def test_any_bytes_end_without_an_error(raw: bytes) -> None:
    for end in frame_ends(raw):
        assert 0 < end <= len(raw)


def test_incompressible_and_large_entries_keep_their_ends() -> None:
    import random

    big = {"text": random.Random(1).randbytes(700_000).hex(), "same": "x" * 1_000_000}
    raw = encode(big) + encode({"b": 1})
    first, second = frame_ends(raw)
    assert (decode(raw[:first]), decode(raw[first:second])) == (big, {"b": 1})
    assert second == len(raw)


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_a_damaged_byte_costs_one_answer(data: st.DataObject) -> None:
    frames = [encode(entry(item, trial)) for item in ITEMS for trial in (0, 1)]
    raw = bytearray(b"".join(frames))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    hit = next(n for n in range(6) if at < sum(map(len, frames[: n + 1])))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "j")
        path.write_bytes(raw)
        with Journal(path, ITEMS, 2) as journal:
            found = [place for place, _ in journal.recover()]
            # a bit that a decoder does not look at may change nothing
            assert set(found) >= set(range(6)) - {hit}
            assert hit in found or journal.damaged == (hit < 5)
            kept = len(raw) - (0 if hit < 5 or hit in found else len(frames[5]))
            assert path.read_bytes() == raw[:kept]
            journal.write([(hit, entry(ITEMS[hit // 2], hit % 2, again=True))])
            assert [one.get("again", False) for one in journal] == [n == hit for n in range(6)]


def test_a_frame_of_deep_nesting_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "j"
    deep = zstandard.compress(b"[" * 100_000 + b"]" * 100_000)
    path.write_bytes(encode(entry("a", 0)) + deep + encode(entry("b", 0)))
    with Journal(path, ITEMS, 2) as journal:
        assert [place for place, _ in journal.recover()] == [0, 2]
        assert journal.damaged == 1


@pytest.mark.parametrize(
    "odd",
    [
        entry("d", 0),
        entry("a", 2),
        {**entry("a", 0), "trial": None},
        {**entry("a", 0), "item": ["a"]},
        {"item": "a", "outcome": OUTCOME},
        {"trial": 1, "outcome": OUTCOME},
        {"item": "a", "trial": 0},
        entry("a", 0, outcome=None),
        entry("a", 0, outcome={**OUTCOME, "failure": None}),
        entry("a", 0, outcome={**OUTCOME, "served": ["m"]}),
        entry("a", 0, outcome={**OUTCOME, "tokens": 5}),
        entry("a", 0, outcome={**OUTCOME, "transcript": [{"role": "user"}]}),
        entry("a", 0, outcome={**OUTCOME, "transcript": ["x"]}),
    ],
)
def test_entries_of_another_run_are_not_taken(tmp_path: Path, odd: dict) -> None:
    path = tmp_path / "j"
    path.write_bytes(encode(odd))
    assert written(path) == []
    assert path.stat().st_size == 0


def test_the_last_frame_of_a_sample_counts_and_order_is_the_suites(tmp_path: Path) -> None:
    places = {(item, trial): i * 2 + trial for i, item in enumerate(ITEMS) for trial in (0, 1)}
    with Journal(tmp_path / "j", ITEMS, 2) as journal:
        list(journal.recover())
        for item, trial in reversed(places):
            journal.write([(places[item, trial], entry(item, trial, n=1))])
        journal.forget(3)
        assert 3 not in journal
        journal.write([(3, entry("b", 1, n=2))])
        assert 3 in journal
        journal.sync()
        assert [json.dumps(one) for one in journal] == [
            json.dumps(entry(item, trial, n=2 if (item, trial) == ("b", 1) else 1))
            for item, trial in places
        ]
    assert dict(written(tmp_path / "j"))[3]["n"] == 2
