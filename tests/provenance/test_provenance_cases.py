"""Real traffic from public repositories, judged as its expected answers say.

The files are not ours and are not in this repository; without them these tests are skipped.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from hubtools.provenance.run import verify_logs

CASES = Path(__file__).parents[2].parent / "shared" / "cases" / "provenance"
pytestmark = pytest.mark.skipif(
    not CASES.is_dir(), reason="the shared cases are not beside this checkout"
)


def expected() -> dict[str, Any]:
    return json.loads((CASES / "expect.json").read_text())


@pytest.mark.parametrize("name", sorted(expected()) if CASES.is_dir() else [])
def test_the_case_gets_its_verdict(name: str) -> None:
    answer = expected()[name]
    verdict = verify_logs([name], CASES, claim="")
    assert verdict.verdict in answer["verdict"]
    assert verdict.first_mismatch is None
    assert verdict.bad_total == 0
    roles = verdict.to_json()["roles"].values()
    n = sum(role["n"] for role in roles)
    assert n == answer.get("n", answer.get("turns_with_raw_data", n)) > 0
    assert [file["records"] for file in verdict.files] == [n]
    if verdict.verdict == "UNVERIFIABLE":
        assert all(role["k"] == 0 and role["reported"] == {} for role in roles)
        return
    (role,) = roles
    assert role["reported"] == {answer["reported"]: n}
    assert role["requested"] == {answer["requested"]: n}
    assert role["k"] == n


@pytest.mark.parametrize(
    ("name", "claim", "word"),
    [
        ("vcr-deepseek-reasoner-to-v4-flash.yaml", "DeepSeek V4 Flash", "RESOLVED"),
        ("vcr-deepseek-reasoner-to-v4-flash.yaml", "deepseek-reasoner", "RESOLVED"),
        ("vcr-deepseek-reasoner-to-v4-flash.yaml", "DeepSeek V3.2", "CONTRADICTS-CLAIM"),
        ("vcr-deepseek-reasoner-echo-2025-04.yaml", "DeepSeek R1", "ECHO"),
        ("vcr-deepseek-reasoner-echo-2025-04.yaml", "DeepSeek V4 Flash", "CONTRADICTS-CLAIM"),
        ("vcr-openrouter-gemini-to-grok4.yaml", "Grok 4", "RESOLVED"),
        ("vcr-openrouter-gemini-to-grok4.yaml", "gemini-2.0-flash-exp", "CONTRADICTS-CLAIM"),
        ("vcr-openai-responses.yaml", "gpt-4.1-nano", "RESOLVED"),
        ("vcr-anthropic-sse.yaml", "Claude 3 Haiku 20240307", "CONSISTENT"),
        ("inspect-openai-gpt4o-mini.eval", "gpt-4o-mini", "RESOLVED"),
        ("inspect-openai-gpt4o-mini.eval", "gpt-4o-mini-2025-01-01", "CONTRADICTS-CLAIM"),
    ],
)
def test_a_claim_is_held_against_it(name: str, claim: str, word: str) -> None:
    assert verify_logs([name], CASES, claim).verdict == word


def test_roles_and_greetings_of_tau2_are_apart() -> None:
    roles = verify_logs(["tau2-v0-raw_data-choice-only-grok4fast.json"], CASES, "").roles
    assert {name: role["harness"] for name, role in roles.items()} == {
        "agent": 4,
        "user-simulator": 0,
    }
    assert all(list(role["requested"]) == ["xai/grok-4-fast-reasoning"] for role in roles.values())
