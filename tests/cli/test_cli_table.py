"""The lazy table says what the commands say, and listing them loads nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest
from cli_support import HEAVY, clean_env, walk
from click.testing import CliRunner

from hubtools.cli.main import COMMANDS, cli


@pytest.mark.parametrize("name", COMMANDS)
def test_every_row_loads_and_agrees_with_the_table(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert command.get_short_help_str(limit=200) == COMMANDS[name].help


def test_every_command_and_option_has_help() -> None:
    for path, command in walk(cli):
        assert command.help or command.short_help, path
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{path} {parameter.opts}"
        result = CliRunner().invoke(cli, [*path.split()[1:], "--help"], prog_name="hubtools")
        assert result.exit_code == 0, result.output


def loaded_after(argv: list[str], **env: str) -> tuple[str, set[str]]:
    code = (
        "import sys, json\n"
        "from hubtools.cli.main import main\n"
        "try:\n"
        f"    main({argv!r})\n"
        "except SystemExit as end:\n"
        "    sys.stdout.flush()\n"
        "    print(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
        "    raise\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=clean_env(**env)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, set(json.loads(done.stderr.splitlines()[-1]))


def heavy(modules: set[str]) -> set[str]:
    return {module for module in modules if module.partition(".")[0] in HEAVY}


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["-h"]])
def test_help_and_version_import_nothing_heavy_and_no_command(argv: list[str]) -> None:
    shown, modules = loaded_after(argv)
    assert "hubtools" in shown
    assert heavy(modules) == set()
    assert not {row.module for row in COMMANDS.values()} & modules


def completed(line: str) -> tuple[list[str], set[str]]:
    words = line.split(" ")
    shown, modules = loaded_after(
        [],
        _HUBTOOLS_COMPLETE="bash_complete",
        COMP_WORDS=line,
        COMP_CWORD=str(len(words) - 1),
    )
    return [entry.partition(",")[2] for entry in shown.split()], modules


def test_tab_lists_the_commands_without_loading_them() -> None:
    names, modules = completed("hubtools ")
    assert names == list(COMMANDS)
    assert heavy(modules) == set()
    assert not {row.module for row in COMMANDS.values()} & modules


def test_tab_completes_a_prefix_and_options() -> None:
    assert completed("hubtools rel")[0] == ["release"]
    assert "--version" in completed("hubtools --")[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_tab_inside_a_command_imports_nothing_heavy(name: str) -> None:
    options, modules = completed(f"hubtools {name} --")
    assert "--help" in options
    assert heavy(modules) == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_imports_nothing_heavy(name: str) -> None:
    _, modules = loaded_after([name, "--help"])
    assert heavy(modules) == set()


def test_unknown_command_names_the_nearest() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hubtools", "relase"],
        capture_output=True,
        text=True,
        env=clean_env(),
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "error[HT001]: No such command 'relase'. Did you mean 'release'?\n  next: hubtools --help\n"
    )
