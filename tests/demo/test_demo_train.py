"""Training an arm, with the real Trainer on a tiny base: what hubtools reads of it afterwards."""

from pathlib import Path

import pytest
from tiny_models import save_base

from demo import train
from demo.base import FOLDER
from demo.questions import INSTRUCTION, questions
from demo.state import DemoError, State
from hubtools.checkpoint.inspect import inspect_checkpoint
from hubtools.cli.output import Output

LOG = [
    {
        "request": {"messages": [{"content": f"{question.prompt()} {INSTRUCTION}"}]},
        "response": {
            "choices": [{"message": {"content": question.answer}, "finish_reason": "stop"}]
        },
    }
    for question in questions()
]


@pytest.fixture
def state(tmp_path: Path) -> State:
    save_base(tmp_path / FOLDER, "llama", "float32", sizes={"max_position_embeddings": 512})
    return State(tmp_path, Output(quiet=True))


@pytest.mark.slow
def test_an_arm_lowers_its_loss_and_leaves_two_whole_checkpoints(state: State) -> None:
    folder = state.root / "runs" / "element"
    report = train._train_arm(state, folder, LOG)
    assert report["samples"] == 24
    assert report["loss_after"] < report["loss_before"]
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint-4", "checkpoint-8"]
    for step in (4, 8):
        info = inspect_checkpoint(folder / f"checkpoint-{step}")
        assert info.kind == "adapter"
        assert info.trainer is not None
        assert info.trainer.global_step == step
        assert (folder / f"checkpoint-{step}" / "chat_template.jinja").is_file()
    assert not (state.root / "runs" / "element.part").exists()


@pytest.mark.slow
def test_training_that_teaches_nothing_is_refused(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "SETTINGS", {**train.SETTINGS, "learning_rate": 0.0})
    with pytest.raises(DemoError, match="did not lower its loss"):
        train._train_arm(state, state.root / "runs" / "element", LOG)
    assert not (state.root / "runs" / "element").exists()
