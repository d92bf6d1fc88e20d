"""How a verdict is told: the card's paragraph and label, facts, and the error that stops."""

import json
from dataclasses import replace

import pytest
from verdict_support import APRIL_2025, judge, records

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
    assert teacher_label(RESOLVED) == "deepseek-v4-flash (as the publisher's logs report)"
    assert paragraph(RESOLVED) == (
        "The log files that the publisher supplied report `deepseek-v4-flash` in all 1,156 agent "
        "responses (requested: `deepseek-chat`); `deepseek-v4-flash` in all 671 user responses "
        "(requested: `deepseek-chat`). They date the responses 2026-06-09 (UTC). RESOLVED means: "
        "the responses carry another name than the request, so it is no mere echo of it. Grade B "
        "(of A to F) means: the records have the form of responses as a client saves them, which "
        "can be imitated. Nothing here shows that the logs are complete or unaltered, which "
        "weights answered, or that this checkpoint was trained on the responses. The sha256 "
        "digest of each log file is in `.hubtools/provenance.json`: whoever is given the logs can "
        "tell by it whether they are the files that were counted."
    )


def test_an_echoed_alias_is_no_identity() -> None:
    label = "not disclosed (the responses repeat the requested deepseek-chat)"
    assert teacher_label(ECHO) == label
    assert "they do not tell which model answered" in paragraph(ECHO)


def test_a_server_of_ones_own_in_words() -> None:
    assert teacher_label(OWN) == "smol (self-hosted; the name is the operator's)"
    text = paragraph(OWN)
    assert "the name is what its operator configured" in text
    assert (
        f"the operator states that it served the weights with digest `{'1' * 64}`" in text.lower()
    )
    bare = {**OWN, "hosting": {**OWN["hosting"], "weights": ""}}
    assert "gave no digest of the weights" in paragraph(bare)


@pytest.mark.parametrize("word", SEVERITY)
def test_every_verdict_has_words_and_only_good_ones_a_name(word: str) -> None:
    verdict = EXAMPLES[word]
    assert verdict["verdict"] == word
    text, label = paragraph(verdict), teacher_label(verdict)
    assert text.endswith(".")
    assert "  " not in text
    assert f"{word} means: " in text
    assert f"Grade {verdict['grade']} (of A to F) means: " in text
    assert "Nothing here shows that the logs are complete or unaltered" in text
    assert "API" not in text
    assert "API" not in label
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
    assert error.value.where
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
        "next": "run again with the logs of the training data alone; if these hold all the models, "
        "no single teacher can be claimed",
        "exit_code": 3,
    }


def stopped(verdict: dict, claim_where: str = "family.toml:3") -> CheckError:
    with pytest.raises(CheckError) as error:
        require_acceptable(verdict, claim_where)
    return error.value


def test_a_contradicted_claim_is_answered_by_the_claim_to_make() -> None:
    verdict = EXAMPLES["CONTRADICTS-CLAIM"]
    assert 'claim = "deepseek-v4-flash" at family.toml:3' in stopped(verdict).next
    assert "(--claim deepseek-v4-flash)" in stopped(verdict, "--claim").next


CHANGED = replace(records(1)[0], body="other", line=99)


@pytest.mark.parametrize(
    ("group", "message", "where", "advice"),
    [
        (
            records(3, created=APRIL_2025),
            "the logs are suspect: deepseek-v4-flash is reported for 2025-04-22, but that name "
            "came into use on 2026-04-24",
            "agent.jsonl:1",
            "look at `created` in agent.jsonl:1",
        ),
        (
            [*records(5), CHANGED],
            "the logs are suspect: a response id occurs with different contents, so a response "
            "was changed after it was logged",
            "agent.jsonl:1",
            "compare agent.jsonl:1 with its other copy",
        ),
        (
            [*records(5), BadLine("a.jsonl", 7, "duplicate key", "'model'")],
            "the logs are suspect: a line says a JSON key twice, so that two readers can "
            "disagree about what was logged",
            "a.jsonl:7",
            "have a.jsonl:7 written again",
        ),
    ],
    ids=["before its time", "changed", "duplicate key"],
)
def test_a_suspicion_is_told_by_its_cause_with_a_fix_that_fits(
    group: list, message: str, where: str, advice: str
) -> None:
    error = stopped(judge(group).to_json())
    assert (error.id, error.message, error.where) == ("HT211", message, where)
    assert error.next.startswith(advice)
    assert sum(line.startswith("see     ") for line in error.detail) == 1
    assert 'or set [provenance] status = "reported"' in error.next
    by_option = stopped(judge(group).to_json(), "--claim").next
    assert "[provenance]" not in by_option
    assert by_option.startswith(advice)


def test_the_earliest_response_is_named_and_further_signs_follow() -> None:
    late = records(2)
    early = [replace(r, line=40, id="early") for r in records(1, created=APRIL_2025)]
    verdict = judge(late, early, [CHANGED]).to_json()
    assert [sign["cause"] for sign in verdict["suspicions"]] == [
        "changed response",
        "before its time",
    ]
    assert verdict["suspicions"][1]["where"] == "agent.jsonl:40"
    assert any(line.startswith("also    deepseek-v4-flash is") for line in stopped(verdict).detail)
    assert judge(late).suspicions == ()


def test_roles_that_differ_get_the_weakest_word() -> None:
    verdict = judge(records(3), records(2, "m-20240307", "m-20240307", role="user")).to_json()
    text = paragraph(verdict)
    assert "CONSISTENT, the weakest of the roles' verdicts, means: " in text


def test_a_self_hosted_label_is_the_reported_name_unless_that_is_a_path() -> None:
    own = Hosting()
    named = judge(records(2, "smol-lm", "smol-lm"), claim="Smol LM", hosting=own).to_json()
    assert teacher_label(named).startswith("smol-lm (")
    path = judge(records(2, "/x/base", "/x/base"), claim="Smol LM", hosting=own).to_json()
    assert teacher_label(path).startswith("Smol LM (")


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
