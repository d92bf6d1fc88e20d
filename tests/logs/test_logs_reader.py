"""Lines to records: the shapes that are read, and the damage that is named."""

import gzip
import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_lines import chunk, lines, pair, response

from hubtools.logs import jsonline
from hubtools.logs.read import read_line, read_logs
from hubtools.logs.records import BadLine, Record


def read(value, end: bytes = b"\n") -> list[Record | BadLine]:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return list(read_line(raw + end, "log", 1))


def one(value) -> Record:
    (found,) = read(value)
    assert isinstance(found, Record), found
    return found


def bad(value, end: bytes = b"\n") -> tuple[str, str]:
    (found,) = read(value, end)
    assert isinstance(found, BadLine), found
    return found.kind, found.detail


def test_a_pair_gives_role_request_and_response() -> None:
    asked = {"model": "alias-x", "models": ["fallback-y", 3], "messages": []}
    answer = response("chatcmpl-77f", system_fingerprint="fp_1", provider="Host")
    found = one({"role": "User Sim", "request": asked, "response": answer})
    assert replace(found, body="") == Record(
        file="log",
        line=1,
        grade="B",
        role="user_sim",
        requested="alias-x",
        reported="model-x",
        id="chatcmpl-77f",
        created=1780000000.0,
        fingerprint="fp_1",
        provider="Host",
        offered=("fallback-y",),
    )


def test_the_role_never_comes_from_the_message() -> None:
    assert one(response()).role == "unknown"
    assert one({"request": {}, "response": response()}).role == "unknown"
    assert one(pair(response(), role=None)).role == "unknown"
    assert one(pair(response(), role="…")).role == "unknown"


def test_a_batch_line_is_wire_grade() -> None:
    line = {
        "id": "batch_req_1",
        "custom_id": "row-1",
        "response": {"status_code": 200, "request_id": "r", "body": response("chatcmpl-b")},
        "error": None,
    }
    found = one(line)
    assert (found.grade, found.id, found.requested) == ("A", "chatcmpl-b", "")
    line["response"]["status_code"] = 429
    assert one(line).error == "status 429"
    assert one({**line, "response": None, "error": {"code": "batch_expired"}}).error == (
        "batch_expired"
    )


def test_errors_are_apart() -> None:
    failed = {"error": {"type": "overloaded", "message": "secret prompt"}}
    found = one(pair(failed, asked="m"))
    assert (found.error, found.role, found.requested) == ("overloaded", "agent", "m")
    assert one(failed).error == "overloaded"
    assert one(pair(None, error="timeout")).error == "timeout"
    assert one({"request": {}, "error": True}).error == "True"


def test_a_missing_model_has_three_ways() -> None:
    without = response()
    del without["model"]
    ways = [without, response(model=None), response(model=7), response(model="")]
    assert [one(pair(way)).missing for way in ways] == ["absent", "null", "not text", "absent"]
    assert {one(pair(way)).grade for way in ways} == {"E"}


def test_other_formats_never_count_as_reporting() -> None:
    converse = {"output": {"message": {}}, "stopReason": "end_turn"}
    ollama = {"model": "llama3", "created_at": "2024-05-24T20:26:46Z", "message": {}, "done": True}
    unknown = {"generated": "Hi", "model": "model-x"}
    ways = {}
    for answer in (converse, ollama, unknown):
        found = one(pair(answer))
        assert found.grade == "E"
        ways[found.reported] = found.missing
    assert ways == {"": "other format", "llama3": ""}
    assert one(pair(converse)).missing == "absent"


def test_gateways_are_graded() -> None:
    message = {"role": "assistant", "content": "x", "provider_specific_fields": None}
    litellm = response(choices=[{"index": 0, "message": message}])
    assert one(pair(litellm)).grade == "C"
    streamed = {"model": "m", "stream": True}
    assert one({"request": streamed, "response": litellm}).grade == "E"
    assert one(pair(response(system_fingerprint="fp_ollama"))).grade == "E"
    assert one(pair(response("chatcmpl-417"))).id == ""


def test_a_stream_in_one_line_is_one_record_per_name() -> None:
    whole = [chunk("c1", ""), chunk("c1", "model-x"), chunk("c1", "model-x")]
    found = one(pair(whole))
    assert (found.reported, found.piece, found.id) == ("model-x", True, "c1")
    names = [r.reported for r in read(pair([*whole, chunk("c1", "model-y")]))]
    assert names == ["model-x", "model-y"]
    assert bad(pair([])) == ("not a response", "an empty stream")
    assert one(chunk("c2", "model-x")).piece


def test_copies_have_one_body_whatever_the_key_order() -> None:
    answer = response()
    turned = dict(reversed(answer.items()))
    assert one(answer).body == one(pair(turned)).body != one(response(model="model-y")).body


@pytest.mark.parametrize(
    ("line", "kind", "detail"),
    [
        (b'{"id": "a", "id": "b"}', "duplicate key", "'id'"),
        (b'{"response": {"model": "a", "mod\\u0065l": "b"}}', "duplicate key", "'model'"),
        (b'{"model": "\xff"}', "not UTF-8", "byte 12"),
        (b'{"a": NaN}', "not JSON", "NaN is not JSON"),
        (b'{"a": 1} {"b": 2}', "not JSON", "column 10"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON", "a huge number"),
        (b'{"a":' * 100_000, "too deep", ""),
        (b"[" * 100_000, "too deep", ""),
        (b"[1]", "not an object", "a JSON list"),
        (b"7", "not an object", "a JSON int"),
        (b'{"request": {"model": "m"}}', "not a response", "a request alone"),
        (b'{"messages": []}', "not a response", "another format"),
        (b'{"response": "text"}', "not a response", "its response is not an object"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_bad_lines_are_named(line: bytes, kind: str, detail: str) -> None:
    assert bad(line) == (kind, detail)


def test_a_bom_is_no_damage_and_a_cut_line_is_told_apart() -> None:
    assert one(b"\xef\xbb\xbf" + json.dumps(response()).encode()).reported == "model-x"
    assert bad(b'{"id": "a", "mod', end=b"")[0] == "cut off"
    assert bad(b'{"id": "a", "mod')[0] == "not JSON"


def test_a_line_beyond_the_limit_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonline, "MAX_LINE", 50)
    assert bad(response())[0] == "too long"


def test_names_cannot_play_with_the_terminal() -> None:
    found = one(pair(response(model="\x1b[31mred\u202e\ud83d\n" + "x" * 500)))
    assert found.reported.startswith("?[31mred???x")
    assert len(found.reported) == 200


@pytest.mark.parametrize("created", [True, "1780000000", None, 10**400, -(10**400), 1e300])
def test_odd_creation_times_are_no_times(created) -> None:
    assert one(pair(response(created=created))).created is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["response", "request", "body", "error", "model", "models", "id", "choices",
                 "object", "created", "role", "custom_id", "status_code", "delta", "message"]
            ),
            inner,
            max_size=6,
        ),
        max_leaves=25,
    )
)  # fmt: skip
def test_no_json_crashes_the_reader(value) -> None:
    found = read(value)
    assert found
    assert all(isinstance(item, Record | BadLine) for item in found)


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_reader(value: bytes) -> None:
    assert all(isinstance(item, Record | BadLine) for item in read(value))


def test_files_are_read_in_order_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    a, b, c = tmp_path / "a.jsonl", tmp_path / "sub" / "b.jsonl", tmp_path / "c.jsonl"
    a.write_bytes(b"\n" + lines(pair(response("r1"))) + b"{oops}\n")
    b.write_bytes(gzip.compress(lines(pair(response("r2"))) * 3)[:-4])
    c.write_bytes(json.dumps({"simulations": []}, indent=1).encode())
    found = list(read_logs([a, b, c], tmp_path))
    assert [(item.file, item.line, getattr(item, "kind", "record")) for item in found] == [
        ("a.jsonl", 2, "record"),
        ("a.jsonl", 3, "not JSON"),
        ("sub/b.jsonl", 1, "record"),
        ("sub/b.jsonl", 2, "record"),
        ("sub/b.jsonl", 3, "record"),
        ("sub/b.jsonl", 4, "damaged"),
        ("c.jsonl", 1, "not a response"),
    ]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with path.open("wb") as stream:
        for n in range(400):
            stream.write(lines(pair(response(f"id-{n}"), note="x" * 50_000)))
    tracemalloc.start()
    count = sum(1 for _ in read_logs([path], tmp_path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 400
    assert path.stat().st_size > 20_000_000
    assert peak < 6_000_000
