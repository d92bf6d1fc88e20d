"""What a release did, one durable JSON line per event: for reading after a crash.

The journal is never read to decide anything (the store and the remote are); it is the story.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hubtools.files import disk_error


class Journal:
    """Append-only `journal.jsonl`; each event is on disk before the next step starts.

    Args:
        path: the file; its folder is made.
        clock: seconds since the epoch; passed in so that nothing here reads one.
        heard: called after an event is durable.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float],
        heard: Callable[[str, str], None] = lambda event, target: None,
    ) -> None:
        self.path = path
        self._clock = clock
        self._heard = heard

    def write(self, event: str, target: str = "", **data: Any) -> None:
        """Append one event.

        Raises:
            EnvironmentFailure: HT901.
        """
        line = {"time": round(self._clock(), 3), "event": event, "target": target, **data}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as stream:
                stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise disk_error(error, self.path) from error
        self._heard(event, target)
