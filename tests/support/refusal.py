"""How a refusal must look: code, id, a next step, no traceback, and nothing made on the Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from hubtools.localhub.server import LocalHub


def repos(hub: LocalHub) -> list[str]:
    return sorted(m.id for m in HfApi(endpoint=hub.url, token=hub.token).list_models())


def edit(family: Path, old: str, new: str) -> None:
    file = family / "family.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def refused(hub: LocalHub, ended: Any, code: int, id: str) -> str:
    """The error has its code and id, names a next step, is no traceback, and nothing was made."""
    assert ended.code == code, ended.err
    assert f"error[{id}]" in ended.err
    assert "next: " in ended.err
    assert "Traceback" not in ended.err
    assert repos(hub) == []
    return str(ended.err)
