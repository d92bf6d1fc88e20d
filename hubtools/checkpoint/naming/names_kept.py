"""Names that transformers told before, kept in the user's cache: asking takes it four seconds.

What is kept counts only for this very question: configuration, stored names and shapes, asked
names, the versions of transformers and torch, and the code here that asks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.shards import INDEX, SINGLE, read_weights
from hubtools.digests import sha256_bytes, sha256_json
from hubtools.errors import EnvironmentFailure
from hubtools.files import write_atomic
from hubtools.settings import user_cache

_MOST = 32


def question(base: Path, asked: Sequence[str]) -> str | None:
    """The name of a question to transformers; None where the answer may change without notice.

    Raises:
        CheckError: HT106 config.json not readable; HT10x as `read_weights`.
    """
    try:
        versions = [version("transformers"), version("torch")]
    except PackageNotFoundError:
        return None
    if any("dev" in one for one in versions):
        return None
    disk: list[Any] = []
    if any((base / file).is_file() for file in (SINGLE, INDEX)):
        tensors = read_weights(base).tensors()
        disk = sorted([name, list(entry.shape)] for name, (_, entry) in tensors.items())
    code = sorted(Path(__file__).parent.glob("*.py"))
    return sha256_json({
        "config": read_object(base / "config.json"),
        "disk": disk,
        "asked": list(asked),
        "versions": versions,
        "code": [sha256_bytes(file.read_bytes()) for file in code],
    })  # fmt: skip


def recall(key: str) -> dict[str, Any] | None:
    """The answer kept for a question; None when there is none, or it is damaged."""
    try:
        digest, _, text = _place(key).read_bytes().partition(b"\n")
        if digest.decode() != sha256_bytes(text):
            return None
        answer: dict[str, Any] = json.loads(text)
    except (OSError, ValueError):
        return None
    with suppress(OSError):
        os.utime(_place(key))  # the oldest go first
    return answer


def keep(key: str, answer: dict[str, Any]) -> None:
    """Keep an answer, and no more than the last few; where nothing can be written, nothing is."""
    text = json.dumps(answer).encode()
    with suppress(EnvironmentFailure, OSError):
        write_atomic(_place(key), sha256_bytes(text).encode() + b"\n" + text)
        kept = sorted(_place(key).parent.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
        for file in kept[:-_MOST]:
            file.unlink(missing_ok=True)


def _place(key: str) -> Path:
    return user_cache(os.environ) / "names" / f"{key}.json"
