"""Steps run once, whole or not at all."""

from pathlib import Path

import pytest

from demo.state import DemoError, Made, State
from hubtools.cli.output import Output


class Work:
    """A step that writes its run's number."""

    def __init__(self, root: Path) -> None:
        self.file, self.runs = root / "made.txt", 0

    def __call__(self) -> Made:
        self.runs += 1
        self.file.write_text(str(self.runs))
        return [self.file], {"run": self.runs}


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path, Output(quiet=True))


def test_a_step_with_the_same_inputs_is_kept(state: State) -> None:
    work = Work(state.root)
    assert [state.once("s", "step", {"a": 1}, work) for _ in range(3)] == [{"run": 1}] * 3
    assert work.runs == 1


@pytest.mark.parametrize("damage", ["delete", "change", "truncate record", "other inputs"])
def test_a_step_runs_again_when_anything_changed(state: State, damage: str) -> None:
    work = Work(state.root)
    state.once("s", "step", {"a": 1}, work)
    if damage == "delete":
        work.file.unlink()
    elif damage == "change":
        work.file.write_text("another text")
    elif damage == "truncate record":
        record = state.root / "steps" / "s.json"
        record.write_bytes(record.read_bytes()[:-20])
    inputs = {"a": 2 if damage == "other inputs" else 1}
    assert state.once("s", "step", inputs, work) == {"run": 2}


def test_a_step_that_fails_is_not_remembered(state: State) -> None:
    work = Work(state.root)
    state.once("s", "step", {"a": 1}, work)

    def fail() -> Made:
        raise DemoError("no")

    with pytest.raises(DemoError):
        state.once("s", "step", {"a": 2}, fail)
    assert state.once("s", "step", {"a": 1}, work) == {"run": 2}
