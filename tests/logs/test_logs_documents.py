"""Texts of JSON values that are not one a line: arrays, pretty-printed, one after the other."""

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_lines import pair, response

from hubtools.logs import containers
from hubtools.logs.documents import values
from hubtools.logs.located import parse_json
from hubtools.logs.read import read_log
from hubtools.logs.records import BadLine

OBJECTS = st.lists(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=3), inner, max_size=3)
            ),
            max_leaves=8,
        ),
        max_size=4,
    ),
    max_size=5,
)


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@given(OBJECTS, st.integers(1, 40), st.sampled_from([None, 1]), st.booleans(), st.booleans())
def test_values_come_back_whole(items, size, indent, array, raw) -> None:
    texts = [json.dumps(item, indent=indent, ensure_ascii=not raw) for item in items]
    text = json.dumps(items, indent=indent, ensure_ascii=not raw) if array else " ".join(texts)
    found = list(values(pieces(text.encode(), size)))
    assert [json.loads(value) for _, value in found] == items
    assert all(value.endswith(b"\n") for _, value in found)


@given(OBJECTS, st.integers(1, 9))
def test_values_know_their_lines(items, size) -> None:
    text = "\n".join(json.dumps(item, indent=1) for item in items)
    starts, line = [], 1
    for item in items:
        starts.append(line)
        line += json.dumps(item, indent=1).count("\n") + 1
    assert [at for at, _ in values(pieces(text.encode(), size))] == starts


@given(st.binary(max_size=60), st.integers(1, 7))
def test_no_bytes_are_lost_or_crash(data: bytes, size: int) -> None:
    found = b"".join(value for _, value in values(pieces(data, size)))
    for byte in set(data) - set(b"[] \t\r\n,\xef\xbb\xbf"):
        assert found.count(byte) == data.count(byte)


def test_a_damaged_array_keeps_what_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "log"
    whole = json.dumps([pair(response("r1")), pair(response("r2")), 7, pair(response("r3"))])
    log.write_text(whole[:-30])
    found = list(read_log(log, "log"))
    told = [item.kind if isinstance(item, BadLine) else item.id for item in found]
    assert told == ["r1", "r2", "not an object", "cut off"] or told == [
        "r1", "r2", "not JSON", "cut off"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b'{"id": "a", "id": "b",\n "choices": []}', ["duplicate key"]),
        (b'{"choices": [],\n "id": "a"', ["cut off"]),
        (b'{"choices": [],\n "id": a}\n', ["not JSON"]),
        (b'{"response": \n{"choices": [], "id": "a"}} {"choices": [],\n"id": "b"}', ["a", "b"]),
        (b'{"choices": [], "id": "a"}{"choices": [], "id": "b"}', ["a", "b"]),
        (b'{"choi\n{"choices": [], "id": "a"}\n', ["not JSON", "a"]),
        (b"[" * 100_000, ["too deep"]),
        (b'[{"a":' + b"[" * 100_000, ["too deep"]),
        (b"[]", []),
        (b"", []),
    ],
    ids=range(10),
)
def test_what_becomes_of_odd_texts(text: bytes, told: list[str], tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(text)
    found = list(read_log(tmp_path / "log", "log"))
    assert [item.kind if isinstance(item, BadLine) else item.id for item in found] == told


def test_the_lines_of_objects() -> None:
    text = b'{"a": {\n"}{\\"": [{}, {"b":\n{}}]},\n"c": {}}'
    value = parse_json(text, 10)
    inner = value["a"]['}{"']
    assert [value.line, value["a"].line, value["c"].line] == [10, 10, 13]
    assert [inner[0].line, inner[1].line, inner[1]["b"].line] == [11, 11, 12]


def test_a_large_array_on_one_line_is_never_held(tmp_path: Path) -> None:
    item = json.dumps(pair(response("chatcmpl-abc"), note="x\\n" * 20_000)).encode()
    path = tmp_path / "log.json"
    with path.open("wb") as stream:
        stream.write(b"[" + item)
        for _ in range(300):
            stream.write(b", " + item)
        stream.write(b"]")
    assert path.stat().st_size > 20_000_000
    tracemalloc.start()
    count = sum(1 for _ in read_log(path, "log"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 301
    assert peak < 12_000_000


def test_a_document_beyond_the_limit_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hubtools.logs import jsonline

    for module in (containers, jsonline):
        monkeypatch.setattr(module, "MAX_LINE", 1000)
    log = tmp_path / "log"
    log.write_text(json.dumps([{"a": "x" * 5000}, response("r1")], indent=1))
    found = list(read_log(log, "log"))
    assert [getattr(item, "kind", "record") for item in found] == ["too long", "record"]
