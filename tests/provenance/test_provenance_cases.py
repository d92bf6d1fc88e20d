"""Real traffic from public repositories, judged as its expected answers say.

The files are not ours and are not in this repository; without them these tests are skipped.
Cassettes and agent logs are turned into the log lines a collecting script would have written.
"""

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from hubtools.provenance.run import verify_logs

CASES = Path(__file__).parents[2].parent / "shared" / "cases" / "provenance"
pytestmark = pytest.mark.skipif(
    not CASES.is_dir(), reason="the shared cases are not beside this checkout"
)

OTHER_FORMAT = {
    "vcr-openai-responses.yaml",
    "vcr-anthropic-sse.yaml",
    "vcr-gemini-generatecontent.yaml",
}
"""Not chat completions: nothing is concluded from them, whatever they report."""


def expected() -> dict[str, Any]:
    return json.loads((CASES / "expect.json").read_text())


def body(message: dict[str, Any]) -> Any:
    if "parsed_body" in message:
        return message["parsed_body"]
    text = message["body"]["string"] if isinstance(message["body"], dict) else message["body"]
    text = gzip.decompress(text) if isinstance(text, bytes) else text
    try:
        return json.loads(text)
    except ValueError:
        return {"text": text}


def log_lines(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".yaml":
        cassette = yaml.safe_load(path.read_text())
        return [
            {"request": body(pair["request"]), "response": body(pair["response"])}
            for pair in cassette["interactions"]
        ]
    if path.suffix == ".eval":
        with zipfile.ZipFile(path) as archive:
            samples = [n for n in archive.namelist() if n.startswith("samples/")]
            events = [e for n in sorted(samples) for e in json.loads(archive.read(n))["events"]]
        return [event["call"] for event in events if event["event"] == "model"]
    if path.name.startswith("tau2"):
        runs = json.loads(path.read_text())["simulations"]
        turns = [turn for run in runs for turn in run["messages"] if turn.get("raw_data")]
        return [{"role": turn["role"], "response": turn["raw_data"]} for turn in turns]
    turns = json.loads(path.read_text())["trajectory"]
    return [{"role": "agent", "response": {"text": turn["response"]}} for turn in turns]


@pytest.mark.parametrize("name", sorted(expected()) if CASES.is_dir() else [])
def test_the_case_gets_its_verdict(name: str, tmp_path: Path) -> None:
    lines = log_lines(CASES / name)
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    answer = expected()[name]
    verdict = verify_logs(["log.jsonl"], tmp_path, claim="")
    if name in OTHER_FORMAT:
        assert verdict.verdict == "UNVERIFIABLE"
        return
    assert verdict.verdict in answer["verdict"]
    assert verdict.first_mismatch is None
    roles = verdict.to_json()["roles"].values()
    n = sum(role["n"] for role in roles)
    assert n == answer.get("n", answer.get("turns_with_raw_data", n))
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
        ("inspect-openai-gpt4o-mini.eval", "gpt-4o-mini", "RESOLVED"),
        ("inspect-openai-gpt4o-mini.eval", "gpt-4o-mini-2025-01-01", "CONTRADICTS-CLAIM"),
    ],
)
def test_a_claim_is_held_against_it(name: str, claim: str, word: str, tmp_path: Path) -> None:
    lines = log_lines(CASES / name)
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert verify_logs(["log.jsonl"], tmp_path, claim).verdict == word


@pytest.mark.parametrize("name", sorted(expected()) if CASES.is_dir() else [])
def test_a_file_in_another_container_supports_nothing(name: str) -> None:
    verdict = verify_logs([name], CASES, claim="")
    assert verdict.verdict == "UNREADABLE"
    assert verdict.roles == {}
    assert verdict.bad_total
