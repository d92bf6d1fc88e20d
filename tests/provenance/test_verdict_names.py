"""Which name a response carries: aliases, requests, copies, and what a name is worth."""

from dataclasses import replace

import pytest
from verdict_support import APRIL_2025, judge, records

from hubtools.provenance.explain import teacher_label
from hubtools.provenance.judge import Hosting

OCTOBER_2026 = 1791000000.0
ECHOED_R1 = judge(
    records(2, "deepseek-reasoner", "deepseek-reasoner", created=APRIL_2025), claim="DeepSeek R1"
)


def test_an_alias_answered_by_one_name_is_resolved() -> None:
    verdict = judge(records(1156), records(671, role="user"), claim="DeepSeek V4 Flash").to_json()
    assert verdict["verdict"] == "RESOLVED"
    assert verdict["grade"] == "B"
    assert verdict["roles"]["agent"] == {
        "n": 1156,
        "k": 1156,
        "requested": {"deepseek-chat": 1156},
        "requested_from": "log",
        "reported": {"deepseek-v4-flash": 1156},
        "verdict": "RESOLVED",
        "missing": {},
        "unsupported": {},
        "errors": 0,
        "harness": 0,
    }
    assert verdict["roles"]["user"]["k"] == verdict["roles"]["user"]["n"] == 671
    assert verdict["created"] == {"from": "2026-06-09T10:13:20Z", "to": "2026-06-09T10:13:20Z"}
    assert verdict["first_mismatch"] is None
    assert any("deepseek-chat was an alias of deepseek-v4-flash" in n for n in verdict["notes"])
    assert verdict["notes"][0] == (
        "the name deepseek-v4-flash has stood for different weights; on 2026-06-09 it meant "
        "DeepSeek-V4-Flash (2026-04-24 to 2026-07-31), by the provider's page: "
        "https://api-docs.deepseek.com/news/news260424"
    )


@pytest.mark.parametrize(
    ("asked", "reported", "claim", "word"),
    [
        ("gpt-4o", "gpt-4o-2024-08-06", "gpt-4o", "RESOLVED"),
        ("my-deployment", "gpt-4o-2024-08-06", "gpt-4o-2024-08-06", "RESOLVED"),
        ("claude-3-haiku-20240307", "claude-3-haiku-20240307", "Claude 3 Haiku", "CONSISTENT"),
        ("", "claude-3-haiku-20240307", "Claude 3 Haiku", "CONSISTENT"),
        ("gemini-2.5-flash", "gemini-2.5-flash", "gemini-2.5-flash", "ECHO"),
        ("gemini-2.5-flash", "models/gemini-2.5-flash", "", "ECHO"),
        ("deepseek-chat", "deepseek-chat", "DeepSeek V4 Flash", "ECHO"),
        ("", "gemini-2.5-flash", "gemini-2.5-flash", "NAME-ONLY"),
        ("fast", "gpt-4o", "gpt-4o-2024-08-06", "NAME-ONLY"),
        ("deepseek-chat", "deepseek-v4-flash", "deepseek-chat", "RESOLVED"),
        ("deepseek-chat", "deepseek-v4-flash", "DeepSeek V3.2", "CONTRADICTS-CLAIM"),
        ("gpt-4o", "gpt-4o-2024-08-06", "gpt-4o-2024-05-13", "CONTRADICTS-CLAIM"),
        ("gemini-x", "grok-4", "gemini-x", "CONTRADICTS-CLAIM"),
        ("gemini-x", "grok-4", "", "RESOLVED"),
    ],
)
def test_one_name_in_all_responses(asked: str, reported: str, claim: str, word: str) -> None:
    verdict = judge(records(5, reported, asked), claim=claim)
    assert verdict.verdict == word
    assert (verdict.first_mismatch is not None) == (word == "CONTRADICTS-CLAIM")


def test_a_name_with_several_weights_in_the_window_is_a_name_only() -> None:
    june, august = records(3), records(3, role="user", created=1786000000.0)
    assert judge(june).verdict == "RESOLVED"
    assert judge(june, [replace(r, role="agent") for r in august]).verdict == "NAME-ONLY"
    assert judge(records(3, created=None)).verdict == "NAME-ONLY"
    moved = judge(records(3, requested="deepseek-flash", created=OCTOBER_2026))
    assert moved.verdict == "NAME-ONLY"
    assert any("meant DeepSeek-V4.1-Flash (since 2026-09-10)" in note for note in moved.notes)


def test_an_alias_is_told_with_its_time_and_whose_word_that_is() -> None:
    (third,) = (note for note in ECHOED_R1.notes if "meant" in note)
    assert "on 2025-04-22 it meant DeepSeek-R1 (2025-01-20 to 2025-05-28)" in third
    assert "by a third party's page: https://" in third
    (timeless,) = (n for n in judge(records(2, created=None)).notes if "meant" in n)
    assert (
        "; at times that the responses do not state, it meant DeepSeek-V4-Flash (2026-04-24 to "
        "2026-07-31), then DeepSeek-V4-Flash-0731 (2026-07-31 to 2026-09-10), then "
        "DeepSeek-V4.1-Flash (since 2026-09-10), by the provider's page: https://"
    ) in timeless
    only = judge(records(2, "deepseek-flash", "", created=OCTOBER_2026))
    assert any(n.startswith("the name deepseek-flash is an alias; on 2026-10") for n in only.notes)


@pytest.mark.parametrize(
    ("asked", "reported", "claim", "said"),
    [
        (
            "deepseek-chat", "deepseek-v4-flash", "deepseek-chat",
            "the claim deepseek-chat is an alias, not a model's own name; the card names what the "
            "responses report: deepseek-v4-flash",
        ),
        (
            "gpt-4o", "gpt-4o-2024-08-06", "gpt-4o",
            "the claim gpt-4o names no version; the card names the one that the responses report: "
            "gpt-4o-2024-08-06",
        ),
        (
            "fast", "gpt-4o", "gpt-4o-2024-08-06",
            "the claim gpt-4o-2024-08-06 says more than the responses, which report gpt-4o; the "
            "card names no more",
        ),
        (
            "deepseek-chat", "deepseek-chat", "deepseek-chat",
            "the claim deepseek-chat is an alias, which the responses repeat; the card does not "
            "call it the teacher",
        ),
    ],
)  # fmt: skip
def test_a_claim_by_another_name_is_noted_and_not_put_on_the_card(
    asked: str, reported: str, claim: str, said: str
) -> None:
    verdict = judge(records(5, reported, asked), claim=claim)
    assert verdict.notes[0] == said
    label = teacher_label(verdict.to_json())
    assert label.startswith("not disclosed" if asked == reported else f"{reported} (")


def test_card_and_note_agree_about_an_alias_that_was_not_merely_repeated() -> None:
    answered = records(5, requested="deepseek-chat", created=OCTOBER_2026)
    verdict = judge(answered, claim="deepseek-v4-flash")
    assert verdict.verdict == "NAME-ONLY"
    assert teacher_label(verdict.to_json()).startswith("deepseek-v4-flash (a name in")
    assert verdict.notes[0] == (
        "the claim deepseek-v4-flash is an alias, which the responses report; the card gives a"
        " name, not weights"
    )


def test_a_claim_by_the_reported_name_needs_no_note() -> None:
    assert not any("the claim" in n for n in judge(records(5), claim="DeepSeek V4 Flash").notes)


def test_a_request_from_the_configuration_is_marked() -> None:
    bare = judge(records(3, requested=""), requested="deepseek-chat")
    assert bare.verdict == "RESOLVED"
    assert bare.roles["agent"]["requested"] == {"deepseek-chat": 3}
    assert bare.roles["agent"]["requested_from"] == "configuration"
    assert any("taken from the configuration" in note for note in bare.notes)
    assert judge(records(3, requested="")).roles["agent"]["requested_from"] == "nowhere"


def test_a_fallback_in_the_request_is_explained() -> None:
    verdict = judge(records(1, "x-ai/grok-4", "gemini-x", offered=("x-ai/grok-4",)))
    assert any("allowed as a fallback" in note for note in verdict.notes)
    retired = judge(records(1, "model-y", "deepseek-chat", created=OCTOBER_2026))
    assert any("out of use after 2026-07-24" in note for note in retired.notes)


def test_a_server_of_ones_own_gives_a_name_only() -> None:
    own = Hosting(("teacher",), "0" * 64, "1" * 64)
    verdict = judge(records(3, "teacher", "teacher"), claim="teacher", hosting=own).to_json()
    assert verdict["verdict"] == "NAME-ONLY"
    assert verdict["hosting"] == {
        "kind": "self",
        "served": ["teacher"],
        "served_sha256": "0" * 64,
        "weights": "1" * 64,
    }
    assert "the reported name is in the saved model list of the server" in verdict["notes"]
    assert judge(records(3, "other"), claim="teacher", hosting=own).verdict == "CONTRADICTS-CLAIM"
    unlisted = judge(records(3, "other"), hosting=own)
    assert "the saved model list does not hold the reported other" in unlisted.notes
