"""Whether an adapter's own configuration names another base than the one it is put on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hubtools.checkpoint.adapter import AdapterConfig
from hubtools.checkpoint.base import local_folder

_REPO = re.compile(r"[\w.-]+/[\w.-]+")
_SNAPSHOT = re.compile(r"/models--([\w.-]+?)--([\w.-]+)/snapshots/([0-9a-f]{40})/?$")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def other_base(
    config: AdapterConfig, *, repo: str = "", commit: str = "", folder: Path | None = None
) -> str:
    """What adapter_config.json calls the base, when that is not the one in use; else empty.

    A path that is not on this machine can be compared with nothing, and says nothing.

    Args:
        config: of the adapter.
        repo: Hub id of the base in use, when it is known.
        commit: of it, 40 hex digits.
        folder: where the base in use lies.
    """
    named = config.base
    if not named:
        return ""
    place = local_folder(named)
    if place is not None:
        return "" if folder is None or _same_model(place, folder) else named
    if not repo or not _REPO.fullmatch(named):
        return ""
    if named.lower() != repo.lower():
        return named
    pinned = _COMMIT.fullmatch(config.revision) and _COMMIT.fullmatch(commit)
    return f"{named}@{config.revision}" if pinned and config.revision != commit else ""


def in_use(folder: Path) -> dict[str, Any]:
    """Arguments of `other_base` for a base in `folder`; in the Hub's cache, its repo is known."""
    known = _SNAPSHOT.search(folder.absolute().as_posix())
    named = {"repo": f"{known[1]}/{known[2]}", "commit": known[3]} if known else {}
    return {"folder": folder, **named}


def _same_model(one: Path, other: Path) -> bool:
    """By directory, or by configuration and the names and sizes of the weight files."""
    return one.resolve() == other.resolve() or _signature(one) == _signature(other)


def _signature(folder: Path) -> tuple[bytes, dict[str, int]]:
    config = folder / "config.json"
    sizes = {file.name: file.stat().st_size for file in folder.glob("*.safetensors")}
    return config.read_bytes() if config.is_file() else b"", sizes
