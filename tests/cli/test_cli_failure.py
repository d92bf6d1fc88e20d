"""How commands end: messages, exit codes, crash reports, closed pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest
from cli_support import clean_env

from hubtools.cli.failure import READER_GONE, run
from hubtools.cli.options import with_output
from hubtools.cli.output import Output
from hubtools.errors import (
    AuthError,
    CheckError,
    EnvironmentFailure,
    PartialError,
    RemoteMovedError,
    UsageError,
)

TOKEN = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz" + "01234567"
Captured = pytest.CaptureFixture[str]


def ending(problem: BaseException, argv: list[str]) -> int:
    @click.command("go")
    @with_output
    def go(output: Output) -> None:
        raise problem

    return run(go, argv)


def test_an_error_shows_what_where_and_the_next_command(capsys: Captured) -> None:
    problem = CheckError(
        "HT210",
        "teacher claim contradicted by the logs",
        where="cards/x/family.toml:31",
        detail=("claim  claude-x", "logs   model-y 1150 of 1156"),
        next="hubtools provenance verify cards/x",
    )
    assert ending(problem, []) == 3
    assert capsys.readouterr() == (
        "",
        "error[HT210]: teacher claim contradicted by the logs\n"
        "  at cards/x/family.toml:31\n"
        "  claim  claude-x\n"
        "  logs   model-y 1150 of 1156\n"
        "  next: hubtools provenance verify cards/x\n",
    )


def test_what_an_error_quotes_stays_on_its_line(capsys: Captured) -> None:
    fake = "x\n  next: rm -r ~\nerror[HT000]: fake"
    ending(CheckError("HT210", fake, where=fake, detail=(fake, "k" * 50_000), next=fake), [])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5
    starts = ["error[HT2", "  at x\\n ", "  x\\n  ne", "  kkkkkkk", "  next: x"]
    assert [line[:9] for line in lines] == starts
    assert max(map(len, lines)) < 1000


def test_json_adds_the_error_object_on_stdout(capsys: Captured) -> None:
    problem = RemoteMovedError("HT301", f"remote moved, {TOKEN}", next="hubtools plan")
    assert ending(problem, ["--json"]) == 5
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "schema": "hubtools.error/1",
        "error": {
            "id": "HT301",
            "message": "remote moved, hf_[redacted]",
            "where": "",
            "detail": [],
            "next": "hubtools plan",
            "exit_code": 5,
        },
    }
    assert "error[HT301]: remote moved, hf_[redacted]" in err


def test_a_command_that_answered_and_then_fails_prints_no_second_object(
    capsys: Captured,
) -> None:
    @click.command("go")
    @with_output
    def go(output: Output) -> None:
        output.result("hubtools.sample/1", {"stale": 2})
        raise CheckError("HT521", "2 cards are stale")

    assert run(go, ["--json"]) == 3
    out, err = capsys.readouterr()
    assert json.loads(out) == {"schema": "hubtools.sample/1", "stale": 2}
    assert err == "error[HT521]: 2 cards are stale\n"


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (EnvironmentFailure("HT901", "x"), 1),
        (UsageError("HT001", "x"), 2),
        (CheckError("HT210", "x"), 3),
        (AuthError("HT310", "x"), 4),
        (RemoteMovedError("HT301", "x"), 5),
        (PartialError("HT501", "x"), 6),
        (click.UsageError("x"), 2),
        (click.BadParameter("x"), 2),
        (click.FileError("f", "x"), 1),
        (click.exceptions.Exit(10), 10),
        (click.Abort(), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(problem: BaseException, code: int, capsys: Captured) -> None:
    assert ending(problem, []) == code
    assert "Traceback" not in capsys.readouterr().err


def test_colour_flag_reaches_errors(capsys: Captured) -> None:
    ending(CheckError("HT210", "x"), ["--color", "always"])
    ending(CheckError("HT210", "x"), ["--color=always"])
    ending(CheckError("HT210", "x"), ["--color", "never"])
    assert capsys.readouterr().err.splitlines() == [
        "\x1b[31m\x1b[1merror[HT210]:\x1b[0m x",
        "\x1b[31m\x1b[1merror[HT210]:\x1b[0m x",
        "error[HT210]: x",
    ]


def test_a_wrong_option_points_to_the_help_of_its_command(capsys: Captured) -> None:
    assert ending(CheckError("HT210", "x"), ["--jsn"]) == 2
    assert capsys.readouterr().err == (
        "error[HT001]: No such option '--jsn'. Did you mean '--json'?\n  next: hubtools --help\n"
    )


@pytest.mark.parametrize(
    ("problem", "id"),
    [
        (PermissionError(13, "Permission denied", "runs/x"), "HT905"),
        (NotADirectoryError(20, "Not a directory", b"runs/x"), "HT905"),
        (OSError(28, "No space left on device", "runs/x"), "HT901"),
        (OSError(28, "No space left on device"), "HT901"),
    ],
)
def test_what_the_system_refuses_is_no_bug(
    problem: OSError, id: str, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ending(problem, []) == 1
    told = capsys.readouterr().err
    assert f"error[{id}]" in told
    assert ("runs/x" in told) == bool(problem.filename)
    assert "next: " in told
    assert not (tmp_path / ".hubtools").exists()


def test_a_bug_leaves_a_report_without_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUBTOOLS_DEBUG", raising=False)
    problem = ValueError(f"secret {TOKEN}\nAuthorization: Bearer abcdefghijkl")
    assert ending(problem, []) == 1
    err = capsys.readouterr().err
    assert err.startswith("error[HT990]: hubtools has a bug (ValueError: secret hf_[redacted])\n")
    (report,) = (tmp_path / ".hubtools" / "crash").iterdir()
    assert f".hubtools/crash/{report.name}" in err
    text = report.read_text()
    assert "Traceback" in text
    assert "raise problem" in text
    assert TOKEN[3:] not in text
    assert "abcdefghijkl" not in text


def test_a_bug_where_nothing_can_be_written_is_still_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (tmp_path / ".hubtools").write_text("a file stands where the folder should be")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUBTOOLS_DEBUG", raising=False)
    assert ending(RuntimeError("odd"), []) == 1
    assert "could not be written" in capsys.readouterr().err


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUBTOOLS_DEBUG", "1")
    with pytest.raises(RuntimeError, match="odd"):
        ending(RuntimeError("odd"), [])


def test_a_missing_extra_is_named(capsys: Captured) -> None:
    problem = ModuleNotFoundError("No module named 'peft'", name="peft.tuners")
    assert ending(problem, []) == 1
    err = capsys.readouterr().err
    assert err.startswith("error[HT993]: this command needs the Python package peft")
    assert "next: pip install 'hf-hubtools[merge]'" in err


@pytest.mark.parametrize("argv", [["--json", "go"], ["go", "--json"], ["go", "x", "--json"]])
def test_json_counts_wherever_it_stands(argv: list[str], capsys: Captured) -> None:
    from hubtools.cli.options import output_options

    @click.group()
    @output_options
    def top(**_options: Any) -> None:
        pass

    @top.command("go")
    @click.argument("what", default="")
    @with_output
    def go(output: Output, what: str) -> None:
        output.result("hubtools.sample/1", {"what": what})

    assert run(top, argv) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "hubtools.sample/1"


PROGRAM = """
import sys, time, click
from hubtools.cli.failure import run
from hubtools.cli.options import with_output
@click.command()
@with_output
def go(output):
    {body}
sys.exit(run(go, {argv!r}))
"""


def start(body: str, argv: list[str] | None = None, **streams: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(body=body, argv=argv or [])],
        text=True,
        env=clean_env(),
        **streams,
    )


def test_a_reader_that_leaves_ends_the_command_without_noise() -> None:
    body = "[output.line('x' * 1000) for _ in range(100000)]"
    with start(body, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "x" * 1000 + "\n"
        child.stdout.close()
        assert child.stderr.read() == ""
        assert child.wait() == READER_GONE


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_full_disk_under_stdout_is_no_bug(options: list[str]) -> None:
    command = [sys.executable, "-m", "hubtools", "--color", "never", *options, "card", "--help"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=clean_env()
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[:2] == [
        "error[HT901]: cannot write: disk full", "  at stdout"
    ]  # fmt: skip


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_bug(closed: str, tmp_path: Path) -> None:
    shell = f"{sys.executable} -m hubtools plan --offline --json {closed}"
    done = subprocess.run(
        ["sh", "-c", shell], capture_output=True, text=True, env=clean_env(), cwd=tmp_path
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert ("HT003" in done.stderr) == ("2>&-" not in closed)
    assert ("HT003" in done.stdout) == ("2>&-" == closed)
    assert not (tmp_path / ".hubtools").exists()


def test_a_group_without_a_command_answers_in_json() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hubtools", "--json", "card"],
        capture_output=True, text=True, env=clean_env(),
    )  # fmt: skip
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["id"] == "HT001"


def test_a_broken_connection_is_not_taken_for_a_closed_pipe(tmp_path: Path) -> None:
    child = start(
        f"import os; os.chdir({str(tmp_path)!r}); raise BrokenPipeError(32, 'socket')",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    _, err = child.communicate()
    assert child.returncode == 1
    assert "HT990" in err


def test_ctrl_c_says_so_and_exits_130() -> None:
    child = start(
        "output.line('ready'); time.sleep(60)", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(0.05)
    os.kill(child.pid, signal.SIGINT)
    _, err = child.communicate(timeout=20)
    assert child.returncode == 130
    assert err.strip() == (
        "error[HT991]: interrupted\n  next: run the same command again (finished work is kept)"
    )


def test_output_survives_an_ascii_only_terminal() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body="output.note('✓ ok')", argv=[])],
        capture_output=True,
        text=True,
        env=clean_env(PYTHONIOENCODING="ascii"),
    )
    assert done.returncode == 0
    assert done.stderr == "\\u2713 ok\n"
