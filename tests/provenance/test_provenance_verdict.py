"""The verdict classes, each from the counts that make it, and what never changes them."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verdict_support import APRIL_2025, JUNE_2026, judge, records

from hubtools.logs.records import BadLine
from hubtools.provenance.judge import SEVERITY, Hosting
from hubtools.provenance.verdict import STOPPING, verify


def test_a_second_name_is_mixed_however_rare() -> None:
    verdict = judge(records(1150), [replace(r, line=812) for r in records(1, "model-y")])
    assert verdict.verdict == "MIXED"
    assert verdict.roles["agent"]["reported"] == {"deepseek-v4-flash": 1150, "model-y": 1}
    assert verdict.roles["agent"]["k"] == 1150
    assert verdict.first_mismatch == {"file": "agent.jsonl", "line": 812, "reported": "model-y"}
    claimed = judge(records(1), records(50, "model-y"), claim="deepseek-v4-flash")
    assert claimed.verdict == "MIXED"
    assert claimed.first_mismatch["line"] == 1
    neither = judge(records(1), records(50, "model-y"), claim="model-z")
    assert neither.verdict == "CONTRADICTS-CLAIM"
    snapshots = judge(
        records(3, "gpt-4o-2024-05-13", "gpt-4o"), records(3, "gpt-4o-2024-08-06", "gpt-4o"),
        claim="gpt-4o",
    )  # fmt: skip
    assert snapshots.verdict == "MIXED"


def test_the_first_mismatch_is_the_first_in_the_logs() -> None:
    usual, y, z = records(5), records(2, "model-y"), records(2, "model-z", role="user")
    assert judge(usual, z, y, claim="deepseek-v4-flash").first_mismatch["reported"] == "model-z"
    assert judge(usual, y, z, claim="deepseek-v4-flash").first_mismatch["reported"] == "model-y"
    piece = replace(y[0], piece=True, body="", line=70)
    early = judge(usual, [piece], y[1:], claim="deepseek-v4-flash")
    assert early.first_mismatch["line"] == 70


def test_the_worst_role_decides() -> None:
    verdict = judge(records(9), records(2, "model-y", role="user"), claim="deepseek-v4-flash")
    assert verdict.roles["agent"]["verdict"] == "RESOLVED"
    assert verdict.roles["user"]["verdict"] == verdict.verdict == "CONTRADICTS-CLAIM"


def test_missing_names_make_it_partial_and_no_name_unverifiable() -> None:
    nameless = [
        replace(r, reported="", missing="null", grade="E", id=f"m{r.line}") for r in records(2)
    ]
    some = judge(records(8), nameless)
    assert (some.verdict, some.roles["agent"]["n"], some.roles["agent"]["k"]) == ("PARTIAL", 10, 8)
    assert some.roles["agent"]["missing"] == {"null": 2}
    none = judge(nameless, claim="anything")
    assert (none.verdict, none.grade) == ("UNVERIFIABLE", "E")


def test_a_copied_name_is_no_evidence() -> None:
    verdict = judge(records(4, "llama3", "llama3", grade="E"))
    assert verdict.verdict == "UNVERIFIABLE"
    assert verdict.roles["agent"]["reported"] == {}
    assert verdict.roles["agent"]["unsupported"] == {"llama3": 4}


def test_the_grade_is_the_weakest() -> None:
    verdict = judge(records(3, grade="A"), [replace(r, id="c") for r in records(1, grade="C")])
    assert verdict.grade == "C"


def test_copies_count_once_and_a_changed_body_is_suspect() -> None:
    twice = judge(records(5), records(5))
    assert (twice.verdict, twice.roles["agent"]["n"], twice.copies) == ("RESOLVED", 5, 5)
    changed = replace(records(1)[0], body="other", line=99)
    verdict = judge(records(5), [changed])
    assert verdict.verdict == "SUSPECT"
    assert "agent.jsonl:1 and agent.jsonl:99" in verdict.notes[0]
    without = [replace(r, id="", body="same") for r in records(3)]
    assert judge(without).roles["agent"]["n"] == 3


def test_a_duplicate_key_is_suspect_and_other_damage_partial() -> None:
    assert judge(records(5), [BadLine("a", 1, "duplicate key", "'model'")]).verdict == "SUSPECT"
    verdict = judge(records(5), [BadLine("a", n, "not JSON") for n in range(1, 31)])
    assert verdict.verdict == "PARTIAL"
    assert (len(verdict.bad_lines), verdict.bad_total) == (20, 30)
    assert judge([BadLine("a", 1, "damaged")]).verdict == "UNREADABLE"
    assert judge([]).verdict == "UNREADABLE"


def test_a_name_before_its_time_is_suspect() -> None:
    verdict = judge(records(3, created=APRIL_2025), claim="deepseek-v4-flash")
    assert verdict.verdict == "SUSPECT"
    assert any("came into use on 2026-04-24" in note for note in verdict.notes)


def test_errors_are_not_responses() -> None:
    failed = [replace(r, error="overloaded", reported="", grade="E") for r in records(4)]
    verdict = judge(records(6), failed)
    assert verdict.verdict == "RESOLVED"
    assert (verdict.roles["agent"]["n"], verdict.roles["agent"]["errors"]) == (6, 4)
    elsewhere = judge(records(6), [replace(r, role="judge") for r in failed])
    assert elsewhere.verdict == "RESOLVED"
    assert judge(failed).verdict == "UNVERIFIABLE"


def test_pieces_of_a_stream_are_one_response() -> None:
    piece = replace(records(1)[0], piece=True, body="")
    empty = replace(piece, reported="", missing="absent", grade="E")
    whole = judge([empty, piece, piece, replace(piece, id="other")])
    assert (whole.verdict, whole.roles["agent"]["n"]) == ("RESOLVED", 2)
    assert judge([piece, replace(piece, reported="model-y")]).verdict == "MIXED"
    assert judge([empty]).verdict == "UNVERIFIABLE"


def test_a_path_on_a_disk_is_not_published() -> None:
    path = "/home/somebody/run/base"
    own = Hosting((path, "other"))
    verdict = judge(records(3, path, ""), claim="Base Model", requested=path, hosting=own)
    assert verdict.verdict == "NAME-ONLY"
    assert verdict.to_json()["hosting"]["served"] == ["…/base", "other"]
    assert "somebody" not in str(verdict.to_json())
    assert verdict.roles["agent"]["reported"] == {"…/base": 3}
    assert judge(records(3, path, path), claim="Base Model").verdict == "CONTRADICTS-CLAIM"


def test_odd_times_are_not_used() -> None:
    verdict = judge(records(2, created=JUNE_2026 * 1000), records(1, role="user", created=0))
    assert verdict.created == {"from": None, "to": None}
    assert any(
        note == "creation times that are not in seconds, not used: 3" for note in verdict.notes
    )


def test_an_id_with_another_time_is_told() -> None:
    honest = [replace(r, id=f"gen-{int(JUNE_2026) + 9}-{r.line}") for r in records(4)]
    assert not any("another time" in note for note in judge(honest).notes)
    odd = judge(honest, [replace(honest[0], id="gen-1700000000-x", line=9)])
    assert "response ids that carry another time than the response: 1" in odd.notes
    assert odd.verdict == "RESOLVED"


def test_other_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="rules 3"):
        verify([], claim="", rules_version=3)


def test_the_stopping_verdicts_are_the_worst() -> None:
    assert set(SEVERITY[-len(STOPPING) :]) == STOPPING


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["agent", "user"]),
            st.sampled_from(["deepseek-v4-flash", "model-y", ""]),
            st.sampled_from(["deepseek-chat", ""]),
            st.integers(0, 5),
        ),
        max_size=20,
    ),
    st.randoms(use_true_random=False),
)
def test_order_never_matters_and_n_is_accounted_for(rows, shuffle: random.Random) -> None:
    found = []
    for line, (role, reported, asked, id) in enumerate(rows, 1):
        record = records(1, reported, asked, role)[0]
        missing = "" if reported else "absent"
        grade = "B" if reported else "E"
        found.append(
            replace(record, line=line, id=f"{id}", body=f"{id}", missing=missing, grade=grade)
        )
    # One id is one response: keep its copies equal.
    first = {record.id: record for record in reversed(found)}
    found = [replace(first[record.id], line=record.line) for record in found]
    turned = found[:]
    shuffle.shuffle(turned)
    one, other = judge(found), judge(turned)
    assert one.verdict == other.verdict
    assert {k: dict(v) for k, v in one.roles.items()} == {
        k: dict(v) for k, v in other.roles.items()
    }
    assert sum(role["n"] for role in one.roles.values()) == len(first)
    assert one.copies == len(found) - len(first)
    for role in one.roles.values():
        told = sum(role["reported"].values()) + sum(role["missing"].values())
        assert role["n"] == told + sum(role["unsupported"].values())
        assert role["k"] <= role["n"]
        if len(role["reported"]) > 1:
            assert one.verdict in STOPPING
