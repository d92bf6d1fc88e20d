"""TAB knows the members that manifests declare."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from cli_support import clean_env
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


def test_repos_members_and_folders(
    project: Path, asked: tuple[click.Context, click.Parameter]
) -> None:
    assert values(complete.targets(*asked, "")) == [
        "wenyii/dt-r2e-s50",
        "wenyii/dt-r2e-s100",
        "r2e/s50",
        "r2e/s100",
        "cards/dt",
    ]
    assert values(complete.targets(*asked, "r2e/s1")) == ["r2e/s100"]


def test_the_manifest_here_comes_first(
    project: Path, asked: tuple[click.Context, click.Parameter]
) -> None:
    (project / "family.toml").write_text(MANIFEST.replace('"dt"', '"own"'))
    assert values(complete.targets(*asked, "wenyii/"))[0] == "wenyii/own-r2e-s50"
    assert "." in values(complete.targets(*asked, ""))


def test_a_broken_manifest_completes_nothing(
    project: Path, asked: tuple[click.Context, click.Parameter]
) -> None:
    (project / "cards" / "dt" / "family.toml").write_text("schema = ")
    assert values(complete.targets(*asked, "")) == []


@pytest.mark.parametrize("words", ["plan", "release", "push", "card render", "card show"])
def test_commands_offer_them(project: Path, words: str) -> None:
    line = f"hubtools {words} r2e"
    done = subprocess.run(
        [sys.executable, "-m", "hubtools"],
        capture_output=True,
        text=True,
        env=clean_env(
            _HUBTOOLS_COMPLETE="bash_complete",
            COMP_WORDS=line,
            COMP_CWORD=str(len(line.split()) - 1),
        ),
    )
    assert [entry.partition(",")[2] for entry in done.stdout.split()] == ["r2e/s50", "r2e/s100"]
