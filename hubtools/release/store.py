"""What stages produced, by the digest of what they read: a second run does only what changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubtools.digests import sha256_json
from hubtools.files import write_json

SCHEMA = "hubtools.record/1"


@dataclass(frozen=True, slots=True)
class Record:
    """One finished stage for one target.

    Args:
        key: sha256 of the canonical JSON of stage, version, target and inputs.
        inputs: everything the stage read, by digest.
        outputs: what it learned and wrote: JSON, file names with digests.
    """

    stage: str
    version: int
    target: str
    key: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]


def stage_key(stage: str, version: int, target: str, inputs: Mapping[str, Any]) -> str:
    """The name under which a stage's outputs are remembered."""
    return sha256_json({"stage": stage, "version": version, "target": target, "inputs": inputs})


class Store:
    """Records as files `<root>/<stage>/<key>.json`, written atomically.

    A record that is truncated, or does not hash to its own name, counts as absent: the stage is
    done again.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, stage: str, key: str) -> Path:
        """Where the record of this key is, whether or not it exists."""
        return self.root / stage / f"{key}.json"

    def get(self, stage: str, key: str) -> Record | None:
        """The record, or None when there is no whole one."""
        try:
            data = json.loads(self.path(stage, key).read_bytes())
            record = Record(**{name: data[name] for name in Record.__slots__})
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        if not isinstance(record.outputs, dict) or not record.outputs:
            return None
        made = stage_key(record.stage, record.version, record.target, record.inputs)
        return record if made == key else None

    def put(self, record: Record) -> None:
        """Remember a finished stage.

        Raises:
            EnvironmentFailure: HT901 when it cannot be written.
        """
        data = {name: getattr(record, name) for name in Record.__slots__}
        write_json(self.path(record.stage, record.key), {"schema": SCHEMA, **data})

    def keys(self) -> Iterator[tuple[str, str]]:
        """Every (stage, key) in the store, sorted."""
        for file in sorted(self.root.glob("*/*.json")):
            yield file.parent.name, file.stem
