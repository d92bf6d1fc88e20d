"""Models are made once a session; a test that damages one gets a copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_models import LINEAR, save_adapter, save_base
from zoo import Zoo


def pytest_configure(config: pytest.Config) -> None:
    """PEFT 0.21 asks transformers 5.24 for an attribute under its old name."""
    config.addinivalue_line("filterwarnings", "ignore:`is_gradient_checkpointing` is deprecated")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Path]]:
    """(base, adapter) by architecture and dtype, each made once."""
    root = tmp_path_factory.mktemp("models")
    known: dict[tuple[str, str], tuple[Path, Path]] = {}

    def make(kind: str = "llama", dtype: str = "bfloat16") -> tuple[Path, Path]:
        if (kind, dtype) not in known:
            base = save_base(root / f"{kind}-{dtype}", kind, dtype)
            adapter = save_adapter(root / f"{kind}-{dtype}-lora", base, LINEAR[kind])
            known[kind, dtype] = base, adapter
        return known[kind, dtype]

    return make


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    """Bases and adapters of every kind, each made once."""
    return Zoo(tmp_path_factory.mktemp("zoo"))


@pytest.fixture
def broken(made: Callable[..., tuple[Path, Path]], tmp_path: Path) -> tuple[Path, Path]:
    """A copy of (base, adapter) for a test to damage."""
    base, adapter = made()
    return (
        Path(shutil.copytree(base, tmp_path / "base")),
        Path(shutil.copytree(adapter, tmp_path / "adapter")),
    )
