"""Step directories are made once a session by real ranks; a test that damages one copies it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trainer_dirs import save_reference, train


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all full fine-tunes."""
    return train(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The step directory of a LoRA run."""
    return train(tmp_path_factory.mktemp("tuned"), "lora") / "lora"


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """What transformers saves for a trained model, by name and dtype."""
    root = tmp_path_factory.mktemp("references")

    def make(name: str, dtype: str = "bfloat16") -> Path:
        path = root / f"{name}-{dtype}"
        if not path.exists():
            save_reference(path, name, dtype)
        return path

    return make


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of one directory of `trained`, for a test to damage."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(trained / name, tmp_path / "run" / name))

    return copy


@pytest.fixture
def here(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Ingest in this process, which has torch already; `out` is `tmp_path/out`."""
    from hubtools.checkpoint.ingesting.child import work
    from hubtools.checkpoint.ingesting.ingest import plan_ingest
    from hubtools.progress import silent

    def run(step: Path, check: bool = False, **options: Any) -> dict[str, Any]:
        plan_ingest(step, **options)
        base = options.get("base")
        job = {
            "run": str(step),
            "base": str(base) if base else None,
            "dtype": options.get("dtype"),
            "lora_alpha": options.get("lora_alpha"),
            "check_only": check,
            "out": str(tmp_path / "out"),
            "work": str(tmp_path),
            "name": "out",
            "identity": "test",
        }
        return work(job, silent)

    return run
