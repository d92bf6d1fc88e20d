"""Progress where nobody watches (CI logs, pipes): a line per label every few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hubtools.progress import Progress

LINE_EVERY = 5.0
"""Seconds between two lines about the same label."""
SILENCE = 30.0
"""Seconds without a word after which the last label is named again."""


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


class _Teller:
    def __init__(self, note: Callable[[str], None]) -> None:
        self.note = note
        self.label = ""
        self.started: dict[str, float] = {}
        self.due: dict[str, float] = {}
        self.ended: set[str] = set()
        self.last_word = time.monotonic()
        self.lock = threading.Lock()

    def __call__(self, label: str, done: int, total: int | None, unit: str) -> None:
        now = time.monotonic()
        with self.lock:
            self.started.setdefault(label, now)
            self.label = label
            complete = total is not None and done >= total
            if label not in self.ended and (complete or now >= self.due.get(label, now)):
                self.due[label] = now + LINE_EVERY
                self.last_word = now
                self.note(f"· {label}  {amount(done, total, unit)}")
            if complete:
                self.ended.add(label)

    def beat(self) -> None:
        now = time.monotonic()
        with self.lock:
            if self.label and now - self.last_word >= SILENCE:
                self.last_word = now
                self.note(f"· {self.label}  still working, {now - self.started[self.label]:.0f} s")


@contextmanager
def heartbeat(note: Callable[[str], None]) -> Iterator[Progress]:
    """A listener that prints through `note`, and speaks up by itself during long silences."""
    teller = _Teller(note)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(SILENCE / 10):
            teller.beat()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield teller
    finally:
        ended.set()
        watcher.join()
