"""TAB knows the members that manifests declare."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.shell_completion import CompletionItem

from hubtools.cli import complete

MANIFEST = """\
schema = 1
[family]
id = "dt"
owner = "wenyii"
name = "{family}-{arm}-{step}"
kind = "full"
base = { repo = "Qwen/Qwen3-4B", revision = "0123456789012345678901234567890123456789" }
license = "apache-2.0"
[arms.r2e]
steps = ["s50", "s100"]
[provenance]
status = "none"
reason = "no teacher was called"
"""


def values(items: list[CompletionItem]) -> list[str]:
    return [item.value for item in items]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cards" / "dt"
    folder.mkdir(parents=True)
    (folder / "family.toml").write_text(MANIFEST)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def asked() -> tuple[click.Context, click.Parameter]:
    argument = click.Argument(["names"])
    return click.Context(click.Command("go", params=[argument])), argument


def test_members_by_repo_and_by_id(
    project: Path, asked: tuple[click.Context, click.Parameter]
) -> None:
    assert values(complete.members(*asked, "")) == [
        "wenyii/dt-r2e-s50",
        "wenyii/dt-r2e-s100",
        "r2e/s50",
        "r2e/s100",
    ]
    assert values(complete.members(*asked, "r2e/s1")) == ["r2e/s100"]
    assert values(complete.families(*asked, "d")) == ["dt"]


def test_the_manifest_here_comes_first(
    project: Path, asked: tuple[click.Context, click.Parameter]
) -> None:
    (project / "family.toml").write_text(MANIFEST.replace('"dt"', '"own"'))
    assert values(complete.families(*asked, "")) == ["own"]


def test_a_broken_manifest_completes_nothing(
    project: Path, asked: tuple[click.Context, click.Parameter]
) -> None:
    (project / "cards" / "dt" / "family.toml").write_text("schema = ")
    assert values(complete.members(*asked, "")) == []
