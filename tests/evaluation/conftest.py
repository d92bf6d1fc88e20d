"""Real runs in child processes: of a tiny model, and of scripted servers whose scores are known."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "eval_harness"))  # tiny_chat, scripted_server

import pytest
from evaluation_support import RIGHT, WEIGHTS, cell, first_right
from scripted_server import serving
from tiny_chat import save_tiny_adapter, save_tiny_chat, write_suite

from hubtools.evaluation.bridge import evaluate


def pytest_configure(config: pytest.Config) -> None:
    """PEFT 0.21 asks transformers 5.24 for an attribute under its old name."""
    config.addinivalue_line("filterwarnings", "ignore:`is_gradient_checkpointing` is deprecated")


@pytest.fixture(scope="session")
def tiny_chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_chat(tmp_path_factory.mktemp("tiny") / "chat")


@pytest.fixture(scope="session")
def tiny_adapter(tiny_chat: Path) -> Path:
    return save_tiny_adapter(tiny_chat.with_name("adapter"), tiny_chat)


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_suite(tmp_path_factory.mktemp("suites") / "words", 24)


@pytest.fixture(scope="session")
def made_runs(words: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """member → folder of its finished run; the scores are those of `RIGHT`."""
    root = tmp_path_factory.mktemp("runs")
    found = {}
    for member, count in RIGHT.items():
        with serving(first_right(count)) as (url, _):
            how = {"member": member, "weights": WEIGHTS[member], "served_name": member}
            record = evaluate(cell(words, root / member, url=url, **how), log=root / "log")
        found[member] = Path(record["path"]).parent
    return found


@pytest.fixture
def runs(made_runs: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    """Copies that a test may damage."""
    return {
        member: Path(shutil.copytree(folder, tmp_path / "runs" / member))
        for member, folder in made_runs.items()
    }
