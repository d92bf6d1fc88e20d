"""Where this package keeps what it made itself: indexes in a cache, pins among the settings."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """`$XDG_CACHE_HOME/eval_harness`, by default under `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eval_harness"


def config_dir() -> Path:
    """`$XDG_CONFIG_HOME/eval_harness`, by default under `~/.config`."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "eval_harness"
