"""`hubtools card render` on committed families: what ends with exit code 3, and what is written."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_support import clean_env

CARDS = Path(__file__).parents[2] / "cards"


@pytest.fixture
def family(tmp_path: Path) -> Path:
    """A family whose one adapter names no revision of its base: an error."""
    return Path(shutil.copytree(CARDS / "tau2-airline", tmp_path / "family"))


def render(family: Path, *options: str) -> Any:
    argv = [sys.executable, "-m", "hubtools", "card", "render", str(family), *options]
    return subprocess.run(argv, env=clean_env(), capture_output=True, text=True)


def test_an_error_finding_ends_with_three_after_the_card_is_written(family: Path) -> None:
    (card,) = (family / "rendered").glob("*.md")
    before = card.read_bytes()
    card.unlink()
    done = render(family)
    assert done.returncode == 3, done.stderr
    assert done.stdout == f"{card}\n"
    assert card.read_bytes() == before
    assert "error[HT060]: sft/final: base Qwen/Qwen2.5-7B-Instruct" in done.stderr
    answer = render(family, "--json")
    assert answer.returncode == 3
    (told,) = json.loads(answer.stdout)["cards"]
    assert [finding["id"] for finding in told["findings"]] == ["HT060"]


def test_a_check_counts_errors_that_are_not_known(family: Path) -> None:
    assert render(family, "--check").returncode == 3
    assert render(family, "--check", "--known", "HT999").returncode == 3
    known = render(family, "--check", "--known", "HT060")
    assert known.returncode == 0, known.stderr
    assert "error[HT060]" in known.stderr  # told all the same
    (card,) = (family / "rendered").glob("*.md")
    card.write_text("edited")
    changed = render(family, "--check", "--known", "HT060")
    assert changed.returncode == 3
    assert "error[HT521]" in changed.stderr
    assert card.read_text() == "edited"
