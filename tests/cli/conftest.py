"""Processes of our own: plain ones and ones on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from cli_support import clean_env


@dataclass(frozen=True)
class Screen:
    """What a terminal showed, and how the process on it ended."""

    text: str
    code: int


@pytest.fixture
def on_terminal() -> Callable[..., Screen]:
    """Run Python code with stdin, stdout and stderr on one terminal.

    `typed` is its input, given half a second after `prompt` shows.
    """

    def run(code: str, *, prompt: str = "", typed: str = "", **env: str) -> Screen:
        ours, theirs = pty.openpty()
        child = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=clean_env(TERM="xterm-256color", COLUMNS="100", **env),
            start_new_session=True,
        )
        os.close(theirs)
        seen = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # Linux says EIO when the last writer has gone
                break
            if not piece:
                break
            seen += piece
            if prompt and prompt.encode() in seen:
                time.sleep(0.5)
                os.write(ours, typed.encode())
                prompt = ""
        os.close(ours)
        return Screen(seen.decode().replace("\r\n", "\n"), child.wait())

    return run
