"""How a verdict is told: the card's paragraph and label, facts, and the error that stops."""

import json
from dataclasses import replace

import pytest
from verdict_support import judge, records

from hubtools.errors import CheckError
from hubtools.facts import FactSet, facts_from_json
from hubtools.logs.records import BadLine
from hubtools.provenance.accept import require_acceptable
from hubtools.provenance.explain import paragraph, teacher_label
from hubtools.provenance.facts import log_set_digest, verdict_facts
from hubtools.provenance.judge import SEVERITY, Hosting
from hubtools.provenance.verdict import STOPPING

RESOLVED = judge(records(1156), records(671, role="user"), claim="DeepSeek V4 Flash").to_json()
ECHO = judge(records(3, "deepseek-chat"), claim="DeepSeek V4 Flash").to_json()
OWN = judge(
    records(48, "smol", "smol"), claim="smol", hosting=Hosting(("smol",), "", "sha256:" + "1" * 64)
).to_json()
NAMELESS = [replace(r, reported="", missing="null", grade="E") for r in records(3)]
EXAMPLES = {
    "RESOLVED": RESOLVED,
    "CONSISTENT": judge(records(3, "m-20240307", "m-20240307")).to_json(),
    "NAME-ONLY": judge(records(3, "m", "")).to_json(),
    "ECHO": ECHO,
    "PARTIAL": judge(records(3), [BadLine("a", 1, "not JSON")]).to_json(),
    "UNVERIFIABLE": judge(NAMELESS).to_json(),
    "MIXED": judge(records(3), records(2, "model-y")).to_json(),
    "CONTRADICTS-CLAIM": judge(records(3), claim="claude-x").to_json(),
    "SUSPECT": judge(records(3), [BadLine("a", 1, "duplicate key")]).to_json(),
    "UNREADABLE": judge([BadLine("a", 1, "damaged")]).to_json(),
}


def test_a_resolved_teacher_in_words() -> None:
    assert teacher_label(RESOLVED) == "deepseek-v4-flash (as the API reports)"
    assert paragraph(RESOLVED) == (
        "Of 1,156 agent responses, the API reports `deepseek-v4-flash` in 1,156 (requested: "
        "`deepseek-chat`). Of 671 user responses, the API reports `deepseek-v4-flash` in 671 "
        "(requested: `deepseek-chat`). The responses were created 2026-06-09 (UTC). Evidence "
        "grade B: responses as the client saved them from the API. The name was given by the API "
        "and not copied from the request. This is what the API reported; it does not identify "
        "weights. Checked on 2 log files known by digest."
    )


def test_an_echoed_alias_is_no_identity() -> None:
    assert teacher_label(ECHO) == "not disclosed (the API repeats the requested deepseek-chat)"
    assert "they do not tell which model answered" in paragraph(ECHO)


def test_a_server_of_ones_own_in_words() -> None:
    assert teacher_label(OWN) == "smol (self-hosted; the name is the operator's)"
    text = paragraph(OWN)
    assert "is no evidence of the weights" in text
    assert f"the weights' digest as `{'1' * 64}`" in text
    bare = {**OWN, "hosting": {**OWN["hosting"], "weights": ""}}
    assert "gave no digest of the weights" in paragraph(bare)


@pytest.mark.parametrize("word", SEVERITY)
def test_every_verdict_has_words_and_only_good_ones_a_name(word: str) -> None:
    verdict = EXAMPLES[word]
    assert verdict["verdict"] == word
    text, label = paragraph(verdict), teacher_label(verdict)
    assert text.endswith(".")
    assert "  " not in text
    assert (label == "not established by the logs") == (word in {*STOPPING, "UNVERIFIABLE"})


def test_hostile_names_cannot_leave_their_code_span() -> None:
    verdict = judge(records(2, "x`](javascript:1) <b>", "y")).to_json()
    assert "`x'](javascript:1) <b>`" in paragraph(verdict)


@pytest.mark.parametrize("word", SEVERITY)
def test_only_stopping_verdicts_stop(word: str) -> None:
    if word not in STOPPING:
        require_acceptable(EXAMPLES[word], "family.toml:3")
        return
    with pytest.raises(CheckError) as error:
        require_acceptable(EXAMPLES[word], "family.toml:3")
    ids = {"SUSPECT": "HT211", "UNREADABLE": "HT212"}
    assert error.value.id == ids.get(word, "HT210")
    assert error.value.next
    assert "Nothing was published." in error.value.detail


def test_a_contradicted_claim_is_told_with_counts_and_place() -> None:
    other = [replace(r, line=r.line + 811) for r in records(6, "claude-x")]
    verdict = judge(records(1150, "model-y"), other, claim="claude-x").to_json()
    with pytest.raises(CheckError) as error:
        require_acceptable(verdict, "cards/dt/family.toml:31")
    assert error.value.to_json() == {
        "id": "HT210",
        "message": "teacher claim contradicted by the logs: more than one model answered",
        "where": "agent.jsonl:1",
        "detail": [
            "claim   claude-x (cards/dt/family.toml:31)",
            "logs    agent: model-y 1,150 of 1,156 responses · claude-x 6",
            "        agent.jsonl:1 is the first mismatch: it reports model-y",
            "Nothing was published.",
        ],
        "next": "correct the claim, or leave out the file; releasing with a contradicted claim "
        "is not possible",
        "exit_code": 3,
    }


def test_a_verdict_becomes_facts_with_its_counts() -> None:
    verdict = {**RESOLVED, "files": [{"path": "a.jsonl", "sha256": "1" * 64}]}
    facts = FactSet(
        tuple(
            verdict_facts(verdict, member="r2e/s50", source_path="p.json", source_sha256="2" * 64)
        )
    )
    by_id = {fact.id: fact for fact in facts}
    assert by_id["teacher.verdict"].value == "RESOLVED"
    assert by_id["teacher.grade"].value == "B"
    assert by_id["teacher.created.from"].value.startswith("2026-06-09")
    reported = by_id["teacher.user.reported"]
    assert (reported.value, reported.n, reported.k) == ("deepseek-v4-flash", 671, 671)
    assert reported.source.pointer == "/roles/user/reported"
    assert reported.subject.logs == log_set_digest(verdict)
    assert by_id["teacher.agent.requested"].value == "deepseek-chat"
    assert (by_id["teacher.agent.k"].value, by_id["teacher.agent.n"].value) == (1156, 1156)
    assert facts_from_json(json.loads(json.dumps(facts.to_json()))) == facts


def test_several_names_are_a_list_without_a_k() -> None:
    found = verdict_facts(
        EXAMPLES["MIXED"] | {"files": []}, member="m", source_path="p", source_sha256="2" * 64
    )
    (reported,) = [fact for fact in found if fact.id == "teacher.agent.reported"]
    assert (reported.value, reported.n, reported.k) == (["deepseek-v4-flash", "model-y"], 5, None)
