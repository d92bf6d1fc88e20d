"""The teacher's log: from a real server on a tiny model to hubtools' own verdict on it."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_models import save_base

from demo import teacher
from demo.base import FOLDER, REPO
from demo.questions import INSTRUCTION, questions
from demo.state import DemoError, State
from demo.train import says, training_pairs
from hubtools.cli.output import Output
from hubtools.provenance.run import verify_logs

ASKED = [question for question in questions() if question.arm == "element"]


def line(prompt: str, text: str, finish: str = "stop") -> dict[str, Any]:
    return {
        "role": "teacher",
        "request": {"model": REPO, "messages": [{"role": "user", "content": prompt}]},
        "response": {"choices": [{"message": {"content": text}, "finish_reason": finish}]},
    }


@pytest.mark.slow
def test_a_real_server_is_logged_and_the_log_is_believed_for_what_it_is_worth(
    tmp_path: Path,
) -> None:
    state = State(tmp_path, Output(quiet=True))
    save_base(tmp_path / FOLDER, "llama", "float32", sizes={"max_position_embeddings": 512})
    with teacher._serving(state) as client:
        served = client.get("/v1/models").json()
        lines = [teacher._ask(client, question.prompt()) for question in ASKED[:2]]
    log = tmp_path / "family" / teacher.LOG
    teacher._write_log(log, lines)
    assert teacher.read_log(log) == lines
    assert all(set(entry) == {"role", "request", "response"} for entry in lines)
    assert "authorization" not in json.dumps(lines).lower()
    assert str(tmp_path) not in json.dumps([lines, served])

    (tmp_path / "served.json").write_text(json.dumps(served))
    verdict = verify_logs(
        [teacher.LOG], log.parent, claim=REPO, hosting="self", served=tmp_path / "served.json"
    ).to_json()
    assert verdict["verdict"] == "NAME-ONLY"
    assert verdict["roles"]["teacher"]["reported"] == {REPO: 2}


def test_targets_are_logged_responses_and_only_right_and_whole_ones() -> None:
    prompts = [f"{question.prompt()} {INSTRUCTION}" for question in ASKED]
    log = [line(p, f"It is {q.answer}.") for p, q in zip(prompts, ASKED, strict=True)]
    log[0] = line(prompts[0], "It is something else.")
    log[1] = line(prompts[1], f"It is {ASKED[1].answer}, and furthermore", "length")
    log.append(line("another question", "It is 5."))
    pairs = training_pairs(log, "element")
    assert pairs == [(question.prompt(), f"It is {question.answer}.") for question in ASKED[2:]]
    assert not any(INSTRUCTION in prompt for prompt, _ in pairs)


def test_too_few_usable_responses_stop_the_demo() -> None:
    log = [line(f"{ASKED[0].prompt()} {INSTRUCTION}", f"It is {ASKED[0].answer}.")]
    with pytest.raises(DemoError, match="only 1 responses are right and whole"):
        training_pairs(log, "element")


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("The symbol of aluminum is Al.", "Al", True),
        ("The symbol of aluminum is aluminum.", "Al", False),
        ("It is found in ores.", "In", False),
        ("Fluorine has the symbol F.", "fluorine", True),
        ("Its number is 115.", "15", False),
    ],
)
def test_an_answer_counts_as_a_word_of_its_own(text: str, answer: str, right: bool) -> None:
    assert says(text, answer) is right
