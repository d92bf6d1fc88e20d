"""A client's computer: processes with an environment and a cache of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from hubtools.localhub.server import LocalHub

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Machine:
    """A client's own computer: its home, its cache, and whether its xet is left on (the default).

    Args:
        home: an empty folder.
        hub: which Hub its environment points to.
        xet: False sets `HF_HUB_DISABLE_XET=1`; True leaves the environment alone.
    """

    home: Path
    hub: LocalHub
    xet: bool = True

    @property
    def kind(self) -> str:
        """How this machine uploads: part of repo names and of what is sent."""
        return "xet" if self.xet else "lfs"

    @property
    def env(self) -> dict[str, str]:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "HF_HOME": str(self.home / "hf"),
            "HF_ENDPOINT": self.hub.url,
            "HF_TOKEN": self.hub.token,
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "OMP_NUM_THREADS": "1",
        }
        return env if self.xet else {**env, "HF_HUB_DISABLE_XET": "1"}

    def traffic(self) -> str:
        """The Hub's log so far: one line a request."""
        return (self.hub.root.parent / "log").read_text()

    def start(self, *command: str) -> subprocess.Popen[str]:
        self.home.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            command,
            env=self.env,
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def script(self, name: str, verb: str, **job: Any) -> subprocess.Popen[str]:
        return self.start(sys.executable, str(HERE / "clients" / name), verb, json.dumps(job))

    def run(self, name: str, verb: str, **job: Any) -> Any:
        """What the function `verb` of a script in `clients/` returns."""
        return json.loads(finished(self.script(name, verb, **job)).splitlines()[-1])

    def hf(self, *arguments: str) -> str:
        """Output of the `hf` command."""
        return finished(self.start(str(Path(sys.executable).with_name("hf")), *arguments))


def finished(process: subprocess.Popen[str]) -> str:
    with process:
        out, story = process.communicate(timeout=200)
    assert process.returncode == 0, story[-4000:]
    return out


def digests(folder: Path) -> dict[str, str]:
    """Relative path → sha256 of every file, the Hub's own bookkeeping left out."""
    return {
        path.relative_to(folder).as_posix(): sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".cache" not in path.parts and path.name != ".gitattributes"
    }
