"""Data and story, JSON and quiet, colour, terminals and pipes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from cli_support import HEAVY, clean_env
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from hubtools.cli import heartbeat
from hubtools.cli.options import with_output
from hubtools.cli.output import Output, paint, use_color
from hubtools.cli.text import cell, clean, one_line, redact
from hubtools.errors import UsageError

TOKEN = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz" + "01234567"
ROWS = [["r2e/s50", "✓ ok"], ["search/s50", "stale"]]
Captured = pytest.CaptureFixture[str]


def test_table_off_a_terminal_is_tab_separated_with_a_header(capsys: Captured) -> None:
    Output().table(["checkpoint", "card"], ROWS)
    assert capsys.readouterr() == ("checkpoint\tcard\nr2e/s50\t✓ ok\nsearch/s50\tstale\n", "")


def test_cells_cannot_break_a_row(capsys: Captured) -> None:
    Output().table(["a"], [["one\ttwo\nthree"]])
    assert capsys.readouterr().out == "a\none two three\n"


def test_json_is_the_only_thing_on_stdout(capsys: Captured) -> None:
    output = Output(json=True)
    output.table(["a"], [["1"]])
    output.line("data")
    output.note("story")
    output.result("hubtools.sample/1", {"n": 3, "name": "Ω"})
    out, err = capsys.readouterr()
    assert json.loads(out) == {"schema": "hubtools.sample/1", "n": 3, "name": "Ω"}
    assert out.count("\n") == 1
    assert err == "story\n"


def test_json_refuses_numbers_that_are_not_json() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Output(json=True).result("hubtools.sample/1", {"em": float("nan")})


def test_quiet_keeps_data_lines_only(capsys: Captured) -> None:
    output = Output(quiet=True)
    output.table(["a"], [["1"]])
    output.note("story")
    output.result("hubtools.sample/1", {})
    with output.progress() as progress:
        progress("upload", 1, 2, "files")
    output.line("owner/name")
    assert capsys.readouterr() == ("owner/name\n", "")


def test_tokens_are_blanked_in_everything(capsys: Captured) -> None:
    output = Output()
    output.line(f"a {TOKEN}")
    output.note(f"Authorization: Bearer {TOKEN}")
    output.table(["t"], [[f"https://user:{TOKEN}@host/x"]])
    Output(json=True).result("hubtools.sample/1", {"t": TOKEN})
    out, err = capsys.readouterr()
    assert TOKEN[3:] not in out + err
    assert (out + err).count("[redacted]") == 4


@given(st.text(alphabet="abcXYZ0189", min_size=20, max_size=40), st.text(), st.text())
def test_redact_finds_a_token_wherever_it_stands(body: str, left: str, right: str) -> None:
    assert body not in redact(f"{left} hf_{body} {right}").replace(left, "").replace(right, "")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Basic dXNlcjpwdw==", "Authorization: Basic [redacted]"),
        ("{'authorization': 'Bearer abc'}", "{'authorization': 'Bearer [redacted]'}"),
        ("sent bearer eyJhbGciOi1.abcdefgh", "sent bearer [redacted]"),
        ("https://me:pw@host/x", "https://[redacted]@host/x"),
    ],
)
def test_redact_blanks_headers_and_passwords(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "hf_hub_download",
        "model hf_xet 1.8",
        "a bearer of uncomfortable news",
        "basic arithmetic questions",
        "https://host/a@b",
    ],
)
def test_redact_leaves_ordinary_words(text: str) -> None:
    assert redact(text) == text


def test_control_characters_of_strangers_are_disarmed() -> None:
    assert clean("a\x1b[31mred\x07\u202e") == "a?[31mred??"
    assert cell("two\nlines\there") == "two lines here"
    assert one_line("name\u2028x\nerror[HT000]: \x1b") == "name?x\\nerror[HT000]: ?"


def test_a_stranger_cannot_add_lines_to_the_story(capsys: Captured) -> None:
    Output().note("the adapter names x\n✓ merged  all is well\nnext: rm -r ~")
    assert capsys.readouterr().err.count("\n") == 1


@given(st.text(max_size=40), st.integers(0, 60_000))
def test_a_line_is_one_and_of_bearable_length(text: str, times: int) -> None:
    shown = one_line(text + "x" * times)
    assert len(shown.splitlines()) <= 1
    assert len(shown) <= 2000
    if times > 2000:
        assert "characters]" in shown


@pytest.mark.parametrize(
    ("choice", "env", "expected"),
    [
        ("auto", {}, False),
        ("auto", {"FORCE_COLOR": "1"}, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("always", {"NO_COLOR": "1"}, True),
        ("never", {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour_precedence(
    monkeypatch: pytest.MonkeyPatch, choice: str, env: dict[str, str], expected: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert use_color(choice, sys.__stdout__) is expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("argv", "env", "expected"),
    [
        ([], {}, "auto"),
        ([], {"HUBTOOLS_COLOR": "never"}, "never"),
        (["--color", "always"], {"HUBTOOLS_COLOR": "never"}, "always"),
        (["--color", "auto"], {"HUBTOOLS_COLOR": "never"}, "auto"),
    ],
)
def test_the_colour_setting_reaches_commands(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
    env: dict[str, str],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    seen: list[str] = []

    @click.command("go")
    @with_output
    def go(output: Output) -> None:
        seen.append(output.color)

    result = CliRunner().invoke(go, argv, env=env)
    assert result.exit_code == 0
    assert seen == [expected]


def test_paint_adds_colour_and_takes_no_words() -> None:
    assert paint("✓ merge 7/7", False) == "✓ merge 7/7"
    painted = paint("✓ merge 7/7", True)
    assert painted.startswith("\x1b[32m")
    assert painted.endswith(" merge 7/7")


def test_confirm_without_a_terminal_names_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/null") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with pytest.raises(UsageError) as caught:
            Output().confirm("Push 3 repos?", False)
        assert caught.value.id == "HT002"
        assert caught.value.next == "run the same command with --yes"
        Output().confirm("Push 3 repos?", True)


def test_progress_off_a_terminal_is_a_line_now_and_then(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(heartbeat, "TICK", 60)
    monkeypatch.setattr(heartbeat, "FIRST_AFTER", 1.0)
    with Output().progress() as progress:
        for step in range(101):
            clock[0] = step / 10
            progress("upload model.safetensors", step * 10**7, 10**9, "bytes")
        progress("upload model.safetensors", 10**9, 10**9, "bytes")
        progress("upload config.json", 0, 700, "bytes")
        progress("upload config.json", 700, 700, "bytes")
    assert capsys.readouterr().err.splitlines() == [
        "· upload model.safetensors  0.1/1.0 GB",
        "· upload model.safetensors  0.6/1.0 GB",
        "· upload model.safetensors  1.0/1.0 GB",
        "· upload config.json  700/700 bytes",
    ]


def test_progress_off_a_terminal_speaks_up_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "FIRST_AFTER", 0.1)
    monkeypatch.setattr(heartbeat, "SILENCE", 0.3)
    monkeypatch.setattr(heartbeat, "TICK", 0.02)
    said: list[str] = []
    spoke = threading.Event()

    def note(text: str) -> None:
        said.append(text)
        if "still working" in text:
            spoke.set()

    with heartbeat.heartbeat(note) as progress:
        progress("merge r2e/s50", 3, None, "files")
        assert spoke.wait(10)
    assert said[0] == "· merge r2e/s50  3 files"


@pytest.mark.parametrize(
    ("done", "total", "unit", "text"),
    [
        (0, 0, "bytes", "0/0 bytes"),
        (512, None, "bytes", "512 bytes"),
        (1500, 2_000_000, "bytes", "0.0/2.0 MB"),
        (212, 500, "samples", "212/500 samples"),
        (4, None, "files", "4 files"),
    ],
)
def test_amounts_in_words(done: int, total: int | None, unit: str, text: str) -> None:
    assert heartbeat.amount(done, total, unit) == text


def test_rich_is_not_imported_off_a_terminal() -> None:
    code = (
        "import sys; from hubtools.cli.output import Output; o = Output()\n"
        "o.table(['a'], [['1']]); o.note('x'); o.result('s', {})\n"
        "with o.progress() as p: p('merge', 1, 2, 'files')\n"
        "print(sorted({m.partition('.')[0] for m in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=clean_env(), check=True
    )
    assert not HEAVY & set(json.loads(done.stdout.splitlines()[-1].replace("'", '"')))


TABLE = (
    "from hubtools.cli.output import Output\n"
    "o = Output()\n"
    "o.table(['checkpoint', 'card'], [['r2e/s50', '✓ ok'], ['[bold]x[/bold]', 'stale']])\n"
    "o.note('✓ done \\x1b[5m')\n"
)


def test_table_on_a_terminal_is_aligned_and_coloured(on_terminal: Callable) -> None:
    screen = on_terminal(TABLE)
    assert screen.code == 0
    assert "\x1b[" in screen.text
    plain = on_terminal(TABLE, NO_COLOR="1").text
    lines = plain.splitlines()
    assert "\t" not in plain
    assert "[bold]x[/bold]" in plain
    assert lines[1].index("✓ ok") == lines[2].index("stale")
    assert "\x1b" not in plain
    assert "\x1b[5m" not in screen.text


def test_a_question_amid_bars_waits_for_its_answer(on_terminal: Callable) -> None:
    code = (
        "from hubtools.cli.output import Output\n"
        "o = Output()\n"
        "with o.progress() as p:\n"
        "    [p(f'file {i}', 1, 1, 'files') for i in range(20)]\n"
        "    o.confirm('Push?', False)\n"
        "    p('push', 1, 2, 'files')\n"
    )
    screen = on_terminal(code, prompt="Push? [y/N]: ", typed="y\n")
    assert screen.code == 0
    before, after = screen.text.split("Push? [y/N]: ")
    assert after.startswith("y\n")
    assert "file 19" in before
    assert "push" in after
    assert "file 19" in after
    assert "file 3 " not in after


def test_bars_on_a_terminal_and_notes_between_them(on_terminal: Callable) -> None:
    code = (
        "from hubtools.cli.output import Output\n"
        "o = Output()\n"
        "with o.progress() as p:\n"
        "    for i in range(4):\n"
        "        p('merge [x]', i, 3, 'files')\n"
        "    o.note('✓ halfway ' + 'x' * 120)\n"
        "    o.line('owner/name' + 'y' * 120)\n"
    )
    text = on_terminal(code).text
    assert "merge [x]" in text
    assert "3/3 files" in text
    assert "halfway " + "x" * 120 in text
    assert "owner/name" + "y" * 120 in text


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_confirm_on_a_terminal(on_terminal: Callable, typed: str, code: int) -> None:
    program = (
        "import sys, click\n"
        "from hubtools.cli.failure import run\n"
        "from hubtools.cli.options import with_output\n"
        "@click.command()\n@with_output\n"
        "def go(output): output.confirm('Push 3 repos?', False); output.line('pushed')\n"
        "sys.exit(run(go, []))"
    )
    screen = on_terminal(program, prompt="[y/N]: ", typed=typed)
    assert screen.code == code
    assert ("pushed" in screen.text) == (code == 0)
    assert ("HT992" in screen.text) == (code == 1)
