"""Progress where nobody watches (CI logs, pipes): a line per label every few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hubtools.progress import Progress

FIRST_AFTER = 3.0
"""Seconds after which work that has not ended gets its first line; quick work gets one in all."""
LINE_EVERY = 5.0
"""Seconds between two lines about the same label."""
SILENCE = 30.0
"""Seconds without a word after which the last label is named again."""
TICK = 0.25


def amount(done: int, total: int | None, unit: str) -> str:
    """How far, in words: `1.2/8.1 GB`, `212/500 samples`, `17 files`."""
    if unit == "bytes":
        return _bytes(done, total)
    return f"{done}/{total} {unit}" if total is not None else f"{done} {unit}"


def _bytes(done: int, total: int | None) -> str:
    top = done if total is None else total
    scale, name = next(
        ((size, word) for size, word in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if top >= size),
        (1.0, "bytes"),
    )
    digits = 0 if scale == 1.0 else 1
    parts = [done] if total is None else [done, total]
    return "/".join(f"{part / scale:.{digits}f}" for part in parts) + f" {name}"


@dataclass
class _Task:
    started: float
    due: float
    far: str = ""
    told: bool = False
    ended: bool = False


class _Teller:
    def __init__(self, note: Callable[[str], None]) -> None:
        self.note = note
        self.tasks: dict[str, _Task] = {}
        self.label = ""
        self.last_word = time.monotonic()
        self.lock = threading.Lock()

    def __call__(self, label: str, done: int, total: int | None, unit: str) -> None:
        now = time.monotonic()
        with self.lock:
            task = self.tasks.setdefault(label, _Task(now, now + FIRST_AFTER))
            self.label = label
            task.far = amount(done, total, unit)
            complete = total is not None and done >= total
            if not task.ended and (complete or now >= task.due):
                self._tell(label, task, now)
            task.ended = task.ended or complete

    def beat(self) -> None:
        """Say what nobody called for: a first line that is due, or a long silence."""
        now = time.monotonic()
        with self.lock:
            task = self.tasks.get(self.label)
            if task is None:
                return
            if not (task.told or task.ended) and now >= task.due:
                self._tell(self.label, task, now)
            elif now - self.last_word >= SILENCE:
                self.last_word = now
                self.note(f"· {self.label}  still working, {now - task.started:.0f} s")

    def _tell(self, label: str, task: _Task, now: float) -> None:
        task.due = now + LINE_EVERY
        task.told = True
        self.last_word = now
        self.note(f"· {label}  {task.far}")


@contextmanager
def heartbeat(note: Callable[[str], None]) -> Iterator[Progress]:
    """A listener that prints through `note`, and speaks up by itself during long silences."""
    teller = _Teller(note)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(TICK):
            teller.beat()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield teller
    finally:
        ended.set()
        watcher.join()
