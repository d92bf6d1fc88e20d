"""What the demo keeps under `.demo/`: steps that are done once, whole or not at all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hubtools.cli.output import Output
from hubtools.digests import DigestCache, sha256_json
from hubtools.files import write_json

Made = tuple[Iterable[Path], Mapping[str, Any]]
"""What a step hands back: the files it made, and facts that later steps read (JSON)."""


def shown(path: Path) -> str:
    """A path as a person types it: relative where it lies below the working directory."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


class DemoError(Exception):
    """The demo cannot go on; the message says why, and what to do."""


class State:
    """The folder of the demo.

    Args:
        root: usually `.demo` in the checkout; everything is below it.
        output: where the story is told.
    """

    def __init__(self, root: Path, output: Output) -> None:
        self.root = root.resolve()
        self.output = output
        self.digests = DigestCache(self.root / "digests.json")

    def log(self, name: str) -> Path:
        """Where a child process of the demo tells its story."""
        return self.root / "logs" / f"{name}.log"

    def env(self, **more: str) -> dict[str, str]:
        """Environment of child processes: a cache of their own, no telemetry, no questions."""
        known = {"HF_HOME": str(self.root / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1"}
        # Threads that spin while they wait are slow where others use the machine too.
        return {**known, "OMP_WAIT_POLICY": "PASSIVE", **more}

    def once(
        self, name: str, title: str, inputs: Mapping[str, Any], work: Callable[[], Made]
    ) -> dict[str, Any]:
        """Run `work` unless its files are there, unchanged, made from the same inputs.

        Args:
            name: of the record, `steps/<name>.json`.
            title: what the step does, in a few words.
            inputs: everything that `work` depends on (JSON).
            work: makes the files.

        Returns:
            The step's facts.
        """
        record, key = self.root / "steps" / f"{name}.json", sha256_json(inputs)
        known = self._whole(record, key)
        if known is not None:
            self.output.note(f"✓ {title}: kept from an earlier run")
            return known
        record.unlink(missing_ok=True)
        self.output.note(f"  {title} …")
        started = time.monotonic()
        files, facts = work()
        sums = {str(file.relative_to(self.root)): self.digests.sha256(file) for file in files}
        self.digests.save()
        write_json(record, {"key": key, "files": sums, "facts": facts})
        self.output.note(f"✓ {title}: {time.monotonic() - started:.0f} s")
        return dict(facts)

    def _whole(self, record: Path, key: str) -> dict[str, Any] | None:
        try:
            kept = json.loads(record.read_bytes())
            files, facts = kept["files"], kept["facts"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        same = kept["key"] == key and all(
            (self.root / name).is_file() and self.digests.sha256(self.root / name) == digest
            for name, digest in files.items()
        )
        return dict(facts) if same else None
