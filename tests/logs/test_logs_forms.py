"""Log formats: where each keeps request, response and role, and its lines."""

import base64
import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_lines import response
from log_samples import (
    ANTHROPIC,
    ANTHROPIC_EVENTS,
    CASSETTE,
    DISTILABEL,
    DOCUMENTS,
    HAR,
    INSPECT,
    LITELLM,
    MINI_SWE,
    OPENHANDS,
    OTEL,
    SPAN,
    SWE_AGENT,
    TAU2,
    TAU_BENCH,
    VERL,
    events,
)

from hubtools.logs.answers import api_of
from hubtools.logs.bodies import body_objects
from hubtools.logs.read import read_log, read_value
from hubtools.logs.records import BadLine, Record


def read(value: Any) -> list[Record]:
    found = list(read_value(value, "log", 1))
    assert all(isinstance(item, Record) for item in found), found
    return found


def told(value: Any) -> list[tuple[str, str, str, str]]:
    return [(item.role, item.requested, item.reported, item.grade) for item in read(value)]


def test_a_cassette_counts_the_calls_alone() -> None:
    called, failed = read(CASSETTE)
    assert (called.requested, called.reported, called.grade) == ("alias-x", "model-x", "A")
    assert (failed.error, failed.reported) == ("status 429", "")


def test_traffic_through_a_litellm_proxy_is_no_evidence_() -> None:
    cassette = json.loads(json.dumps(CASSETTE))
    cassette["interactions"][0]["response"]["headers"]["x-litellm-call-id"] = ["1"]
    assert read(cassette)[0].grade == "E"


def test_the_servers_clock_dates_a_body_without_a_time() -> None:
    cassette = json.loads(json.dumps(CASSETTE))
    body = base64.b64encode(events(*ANTHROPIC_EVENTS).encode()).decode()
    cassette["interactions"][0]["response"]["body"] = {"base64_string": body}
    found = read(cassette)[0]
    assert (found.reported, found.created) == ("claude-x-20250101", 1751120013.0)
    assert read(HAR)[0].created == 1751120013.0


def test_har() -> None:
    assert told(HAR) == [("unknown", "claude-x-20250101", "claude-x-20250101", "A")]


def test_tau2_takes_the_role_of_the_message() -> None:
    assert told(TAU2) == [
        ("agent", "gw/alias-x", "", "E"),
        ("user-simulator", "gw/alias-u", "model-u", "C"),
        ("agent", "gw/alias-x", "model-x", "C"),
        ("agent", "gw/alias-x", "model-x", "C"),
    ]
    assert [item.harness for item in read(TAU2)] == [True, False, False, False]
    assert len(read(TAU2["simulations"][0])) == 4


def test_tau2_before_1_0_names_no_model() -> None:
    old = json.loads(json.dumps(TAU2))
    for message in old["simulations"][0]["messages"][1:]:
        if "raw_data" in message:
            message["raw_data"] = message["raw_data"]["choices"][0]
    assert [(item.missing, item.harness) for item in read(old)] == [
        ("", True), ("absent", False), ("absent", False), ("absent", False)
    ]  # fmt: skip


def test_inspect_without_the_call_is_telemetry() -> None:
    assert told(INSPECT) == [
        ("grader", "alias-x", "model-x", "B"),
        ("unknown", "hf/own", "own", "D"),
    ]
    whole = {"version": 2, "eval": {"model": "openai/alias-x"}, "samples": [INSPECT]}
    assert read(whole) == read(INSPECT)


def test_litellm_keeps_the_raw_body_beside_its_own() -> None:
    (found,) = read(LITELLM)
    assert (found.requested, found.reported, found.grade) == ("alias-x", "model-x", "B")
    logged = LITELLM["standard_logging_object"]
    assert told(logged) == [("unknown", "alias-x", "alias-x", "C")]
    assert told({**logged, "stream": True}) == [("unknown", "alias-x", "alias-x", "E")]
    (failed,) = read({**logged, "status": "failure", "error_str": "timeout"})
    assert failed.error == "timeout"


def test_agents_logs() -> None:
    assert told(MINI_SWE) == [("agent", "gw/alias-x", "model-x", "C")]
    assert told(OPENHANDS) == [("agent", "gw/alias-x", "model-x", "C")] * 2
    assert len({(item.id, item.body) for item in read(OPENHANDS)}) == 1
    assert told(SWE_AGENT) == [("agent", "alias-x", "", "E")]


def test_spans_are_telemetry() -> None:
    for value in (OTEL, SPAN):
        assert told(value) == [("unknown", "alias-x", "model-x", "D")]
        (found,) = read(value)
        assert (found.id, found.created) == ("c-1", 1780000000.5)
    attributes = {"gen_ai.operation.name": "chat", "error.type": "timeout"}
    assert read({"attributes": attributes})[0].error == "timeout"
    assert read({"attributes": {"gen_ai.operation.name": "chat"}})[0].missing == "absent"
    assert read({"attributes": {"gen_ai.operation.name": "execute_tool"}}) == []


def test_logs_without_responses_say_nothing() -> None:
    assert told(TAU_BENCH) == [("user-simulator", "", "", "E"), ("agent", "", "", "E")]
    assert told(VERL) == [("unknown", "", "", "E")]
    assert told(DISTILABEL) == [("unknown", "alias-x", "", "E")]
    assert read(VERL)[0].missing == "absent"


def test_an_anthropic_batch_is_wire_grade() -> None:
    assert told(DOCUMENTS["Anthropic batch"]) == [("unknown", "", "claude-x-20250101", "A")]
    for result, error in (
        ({"type": "expired"}, "expired"),
        ({"type": "errored", "error": {"type": "invalid_request"}}, "invalid_request"),
    ):
        (found,) = read({"custom_id": "1", "result": result})
        assert found.error == error


@pytest.mark.parametrize("write", [json.dumps, lambda value: json.dumps(value, indent=1)])
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_file_of_each_format_is_known_by_its_content(name: str, write, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(write(DOCUMENTS[name]))
    found = list(read_log(tmp_path / "log", "log"))
    assert [item for item in found if isinstance(item, BadLine)] == []
    assert [(item.reported, item.id) for item in found] == [
        (item.reported, item.id) for item in read(DOCUMENTS[name])
    ]


def test_records_of_a_pretty_document_have_their_lines(tmp_path: Path) -> None:
    text = json.dumps(TAU2, indent=1)
    (tmp_path / "log").write_text("\n\n" + text)
    lines = ["", "", *text.splitlines()]
    places = [item.line for item in read_log(tmp_path / "log", "log")]
    said = [lines[place].strip() for place in places]  # the line after the opening brace
    assert said == ['"role": "assistant",', '"role": "user",', *['"role": "assistant",'] * 2]


def test_records_of_a_cassette_have_their_lines(tmp_path: Path) -> None:
    text = yaml.safe_dump(CASSETTE)
    (tmp_path / "log").write_text(text)
    first, second = read_log(tmp_path / "log", "log")
    assert [text.splitlines()[item.line - 1] for item in (first, second)] == ["- request:"] * 2
    assert first.line < second.line


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("version: 1\ninteractions: []\nversion: 2\n", "duplicate key"),
        ("version: &a [*a]\ninteractions: []\n", "not YAML"),
        ("interactions: !!python/object/apply:os.getcwd []\n", "not YAML"),
        ("interactions: [\n", "not YAML"),
        ("version: 1\n", "not a response"),
        ("interactions: " + "[" * 90_000, "not YAML"),
        (
            "version: &a0 [x, x]\n"
            + "".join(f"v{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60)),
            "too long",
        ),
    ],
    ids=["twice", "itself", "object", "open", "other", "deep", "bomb"],
)
def test_yaml_that_is_refused(text: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(text)
    (found,) = read_log(tmp_path / "log", "log")
    assert isinstance(found, BadLine)
    assert found.kind == kind


def test_events_saved_by_themselves(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("event: message_start\n" + events(*ANTHROPIC_EVENTS))
    (found,) = read_log(tmp_path / "log", "log")
    assert isinstance(found, Record)
    assert (found.reported, found.line, found.piece) == ("claude-x-20250101", 2, True)


def test_every_sample_is_known() -> None:
    assert api_of(ANTHROPIC) is not None
    assert api_of({"text": "Hi"}) is None
    assert body_objects("plain text") == ([], False)
    assert api_of(response()) is not None


ODD = (
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20) | st.just([])
    | st.just({}) | st.just([[]]) | st.just([{}]) | st.just(10**400) | st.binary(max_size=20)
    | st.just("data: {") | st.just('{"a": 1, "a": 2}') | st.just("[" * 5000)
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """A document of some format in which up to three parts are replaced by something odd."""
    value = json.loads(json.dumps(DOCUMENTS[draw(st.sampled_from(sorted(DOCUMENTS)))]))
    for _ in range(draw(st.integers(1, 3))):
        if not value:
            break
        place: Any = value
        key = draw(st.sampled_from(sorted(value)))
        while isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
            place = place[key]
            key = draw(
                st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place)))
            )
        if draw(st.booleans()) and isinstance(place, dict):
            del place[key]
        else:
            place[key] = copy.deepcopy(draw(ODD))
    return value


@given(damaged())
@settings(max_examples=400, deadline=None)
def test_no_damaged_document_crashes_a_reader(value: Any) -> None:
    for item in read_value(value, "log", 1):
        assert isinstance(item, Record | BadLine)
        if isinstance(item, BadLine):
            assert item.kind != "reader failed", item
        else:
            assert item.created is None or abs(item.created) < 1e15


WRITERS = {
    "lines": json.dumps,
    "pretty": lambda value: json.dumps(value, indent=1),
    "yaml": lambda value: yaml.safe_dump({"version": 1, "interactions": [], **value}),
    "array": lambda value: json.dumps([value, value]),
    "events": lambda value: events(value, value),
}


@pytest.mark.parametrize("writer", WRITERS)
@given(st.data())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_damaged_file_crashes(tmp_path: Path, writer: str, data: st.DataObject) -> None:
    document = DOCUMENTS[data.draw(st.sampled_from(["VCR", "chat", "τ²", "Inspect"]))]
    raw = bytearray(WRITERS[writer](document).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=3)
            | st.sampled_from([b"&a ", b"*a", b"!!binary ", b"{", b'"', b"[" * 50])
        )
    (tmp_path / "log").write_bytes(raw[: data.draw(st.integers(1, len(raw)))])
    for item in read_log(tmp_path / "log", "log"):
        assert isinstance(item, Record) or item.kind != "reader failed"
