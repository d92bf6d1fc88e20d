"""A whole collection as τ²-bench keeps it: every count comes out, and so does every odd turn."""

import json
from pathlib import Path
from typing import Any

import pytest

from hubtools.provenance.run import verify_logs

RUNS, AGENT, USER = 114, 1156, 671


def shares(total: int) -> list[int]:
    """`total` turns over all runs, as evenly as it goes."""
    return [total // RUNS + (run < total % RUNS) for run in range(RUNS)]


def raw(id: str, created: int) -> dict[str, Any]:
    message = {"role": "assistant", "content": id, "provider_specific_fields": {}}
    return {
        "id": id,
        "object": "chat.completion",
        "created": created,
        "model": "deepseek-v4-flash",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
    }


def results() -> dict[str, Any]:
    simulations = []
    for run, (agent, user) in enumerate(zip(shares(AGENT), shares(USER), strict=True)):
        turns = [("user", n) for n in range(user)] + [("assistant", n) for n in range(agent)]
        messages: list[dict[str, Any]] = [{"role": "assistant", "content": "Hi", "raw_data": None}]
        for role, n in turns:
            data = raw(f"{run}-{role}-{n}", 1780300000 + 60 * run + n)
            messages.append({"role": role, "content": "…", "raw_data": data})
        simulations.append({"task_id": str(run % 29), "trial": run // 29, "messages": messages})
    llm = {"llm": "deepseek/deepseek-chat"}
    info = {"agent_info": llm, "user_info": llm}
    return {"info": info, "tasks": [], "simulations": simulations}


@pytest.mark.parametrize("indent", [None, 2])
def test_the_counts_of_a_whole_collection(tmp_path: Path, indent: int | None) -> None:
    (tmp_path / "results.json").write_text(json.dumps(results(), indent=indent))
    verdict = verify_logs(["results.json"], tmp_path, "DeepSeek V4 Flash").to_json()
    assert (verdict["verdict"], verdict["grade"], verdict["copies"]) == ("RESOLVED", "C", 0)
    for role, n, greetings in (("agent", AGENT, RUNS), ("user-simulator", USER, 0)):
        found = verdict["roles"][role]
        assert (found["n"], found["k"], found["harness"]) == (n, n, greetings)
        assert found["requested"] == {"deepseek/deepseek-chat": n}
        assert found["reported"] == {"deepseek-v4-flash": n}


def test_three_rewritten_turns_are_named(tmp_path: Path) -> None:
    data = results()
    text = json.dumps(data, indent=1)
    for id in ("3-assistant-1", "50-assistant-7", "113-assistant-0"):
        start = text.index(f'"id": "{id}"')
        end = text.index("deepseek-v4-flash", start)
        text = text[:end] + "gpt-5.4-mini" + text[end + len("deepseek-v4-flash") :]
    (tmp_path / "results.json").write_text(text)
    verdict = verify_logs(["results.json"], tmp_path, "DeepSeek V4 Flash").to_json()
    agent = verdict["roles"]["agent"]
    assert (verdict["verdict"], agent["verdict"]) == ("MIXED", "MIXED")
    assert agent["reported"] == {"deepseek-v4-flash": AGENT - 3, "gpt-5.4-mini": 3}
    assert verdict["roles"]["user-simulator"]["verdict"] == "RESOLVED"
    (note,) = [note for note in verdict["notes"] if "gpt-5.4-mini is reported at" in note]
    places = [int(place.rpartition(":")[2]) for place in note.partition(" at ")[2].split(", ")]
    lines = text.splitlines()
    for place, id in zip(places, ("3-", "50-", "113-"), strict=True):
        message = "".join(lines[place - 1 : place + 9])
        assert f'"id": "{id}assistant' in message
        assert "gpt-5.4-mini" in message
    assert verdict["first_mismatch"]["line"] == places[0]
