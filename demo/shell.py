"""Commands as a user types them: shown, run, and their failure passed on."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from demo.state import DemoError, State, shown
from hubtools.localhub.server import LocalHub


class Shell:
    """Runs the commands of this virtual environment against one Hub."""

    def __init__(self, state: State, hub: LocalHub) -> None:
        self.state = state
        self.env = {**os.environ, **state.env(HF_ENDPOINT=hub.url, HF_TOKEN=hub.token)}

    def run(
        self, *words: str, hide_output: bool = False, env: Mapping[str, str] | None = None
    ) -> None:
        """Run a command; its output goes where ours goes.

        Args:
            words: the program, by the name it has in the virtual environment, and its arguments.
            hide_output: keep what it says in a log file.
            env: variables that differ for this command.

        Raises:
            DemoError: it failed; `hubtools` has said why by itself.
        """
        typed = [shown(Path(word)) if os.path.isabs(word) else word for word in words]
        # hubtools is told the Hub by --hub; other programs by their environment.
        place = "" if words[0] == "hubtools" else f"HF_ENDPOINT={self.env['HF_ENDPOINT']} "
        self.state.output.note(f"\n$ {place}{shlex.join(typed)}")
        log = self.state.log(words[0])
        log.parent.mkdir(parents=True, exist_ok=True)
        program = str(Path(sys.executable).with_name(words[0]))
        with log.open("ab") as story:
            stream = story if hide_output else None
            done = subprocess.run(
                [program, *words[1:]],
                env={**self.env, **(env or {})},
                stdout=stream,
                stderr=stream,
                check=False,
            )
        if done.returncode != 0:
            where = f"; see {shown(log)}" if hide_output else ""
            raise DemoError(f"`{shlex.join(typed)}` ended with {done.returncode}{where}")
