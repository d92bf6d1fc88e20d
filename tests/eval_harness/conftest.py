"""One tiny chat model a session."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_chat import save_tiny_adapter, save_tiny_chat


def pytest_configure(config: pytest.Config) -> None:
    """PEFT 0.21 asks transformers 5.24 for an attribute under its old name."""
    config.addinivalue_line("filterwarnings", "ignore:`is_gradient_checkpointing` is deprecated")


@pytest.fixture(scope="session")
def tiny_chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_chat(tmp_path_factory.mktemp("tiny") / "chat")


@pytest.fixture(scope="session")
def tiny_adapter(tiny_chat: Path) -> Path:
    return save_tiny_adapter(tiny_chat.with_name("adapter"), tiny_chat)
