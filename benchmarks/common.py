"""What every benchmark shares: one JSON object a line, its options, processes that are measured."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple


def quick() -> bool:
    """Whether `--quick` was given: the short run, which has its own targets."""
    return bool(arguments().quick)


def arguments() -> argparse.Namespace:
    """The command line: `quick` and `full`."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="end within a minute")
    parser.add_argument("--full", action="store_true", help="the large shapes, where there are any")
    return parser.parse_args()


def emit(
    measure: str, value: float, unit: str, peer: Any, target: float, ok: bool, **extra: Any
) -> None:
    """Print one measurement.

    Args:
        measure: what was measured, `area: quantity`.
        value: rounded here for reading; decide `ok` from the unrounded value.
        unit: of value and target.
        peer: figures of the other sides, measured in the same run.
        target: what was promised.
        ok: whether the promise holds.
        extra: commands, shapes, number of runs.
    """
    line = {"measure": measure, "value": float(f"{value:.4g}"), "unit": unit, "peer": peer}
    print(json.dumps({**line, "target": target, "ok": ok, **extra}), flush=True)


class Run(NamedTuple):
    """What a command took, its children included.

    Args:
        wall: seconds until everything it wrote was on the disk.
        cpu: user and system seconds.
        rss: sum of the peak resident memory of its processes, in MB.
        first: seconds until a watched folder held a byte; None when none was watched.
    """

    wall: float
    cpu: float
    rss: float
    first: float | None


def measured(argv: list[str], inputs: Iterable[Path], watched: Path | None = None) -> Run:
    """Run `argv` with the files of `inputs` dropped from the page cache.

    Args:
        argv: the command.
        inputs: folders.
        watched: folder whose first byte is waited for.

    Raises:
        SystemExit: it failed; with what it wrote to stderr.
    """
    for folder in inputs:
        for file in folder.iterdir():
            with file.open("rb") as stream:
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    os.sync()
    begin = time.perf_counter()
    child = subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    watch = _Watch(child.pid, watched, begin)
    assert child.stderr is not None
    story = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    watch.stop()
    os.sync()
    wall = time.perf_counter() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stderr.close()
    if child.returncode != 0:
        raise SystemExit(story.decode())
    return Run(wall, used.ru_utime + used.ru_stime, watch.rss, watch.first)


class _Watch:
    """Looks at a process tree, and at a folder, every few milliseconds."""

    def __init__(self, pid: int, folder: Path | None, begin: float) -> None:
        self._pid, self._folder, self._begin = pid, folder, begin
        self._peaks: dict[int, float] = {}
        self._over = threading.Event()
        self.first: float | None = None
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    @property
    def rss(self) -> float:
        """Sum of the peaks of all processes seen, in MB."""
        return sum(self._peaks.values())

    def stop(self) -> None:
        """End."""
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        ticks = 0
        while not self._over.wait(0.002 if self._folder and self.first is None else 0.02):
            ticks += 1
            if self._folder and self.first is None and _holds_a_byte(self._folder):
                self.first = time.perf_counter() - self._begin
            if ticks % 5 == 0 or self.first is not None or self._folder is None:
                for pid in _tree(self._pid):
                    self._peaks[pid] = max(_peak(pid), self._peaks.get(pid, 0))


def _holds_a_byte(folder: Path) -> bool:
    try:
        return any(file.stat().st_size for file in folder.iterdir())
    except OSError:
        return False


def _tree(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        try:
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return found


def _peak(pid: int) -> float:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return float(line.split()[1]) / 1024
    except OSError:
        pass  # it has just ended
    return 0.0
