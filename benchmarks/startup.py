"""Start-up: CPU seconds (user + system) of `hubtools --help` beside `hf --help` and click alone.

CPU time of the whole process, as the kernel accounts it to a waited-for child; the median of N
runs, interleaved so that a busy neighbour disturbs all sides alike.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from common import emit, quick

TARGET = 0.08
"""CPU seconds; the import of click and 30 ms."""

SIDES = {
    "hubtools --help": ["hubtools", "--help"],
    "hubtools --version": ["hubtools", "--version"],
    "hubtools <TAB>": ["hubtools"],
    "python -c 'import click'": [sys.executable, "-c", "import click"],
    "hf --help": ["hf", "--help"],
}
TAB = {"_HUBTOOLS_COMPLETE": "bash_complete", "COMP_WORDS": "hubtools ", "COMP_CWORD": "1"}


def cpu_seconds(argv: list[str], env: dict[str, str]) -> float:
    """User plus system time of one run of `argv`; its output goes nowhere."""
    child = subprocess.Popen(
        argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert child.stderr is not None
    story = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stderr.close()
    if child.returncode != 0:
        raise SystemExit(f"{argv} ended with {child.returncode}: {story.decode()}")
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure every side and print one line for each promise."""
    runs = 9 if quick() else 31
    here = str(Path(sys.executable).parent)
    env = {
        **os.environ,
        "PATH": here + os.pathsep + os.environ["PATH"],
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    }
    taken: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(1 + runs):
        for side, argv in SIDES.items():
            taken[side].append(cpu_seconds(argv, env | TAB if side == "hubtools <TAB>" else env))
    for seconds in taken.values():
        del seconds[0]  # the run that compiled the bytecode
    median = {side: statistics.median(seconds) for side, seconds in taken.items()}
    peers = {side: round(median[side], 4) for side in ("python -c 'import click'", "hf --help")}
    for side in ("hubtools --help", "hubtools --version", "hubtools <TAB>"):
        emit(
            f"startup: {side}",
            median[side],
            "CPU s",
            peers,
            TARGET,
            median[side] <= TARGET,
            runs=runs,
            command=" ".join(SIDES[side]),
        )


if __name__ == "__main__":
    main()
