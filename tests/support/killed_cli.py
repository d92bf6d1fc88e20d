"""The command line, killed with its whole process group at events it has not been killed at yet.

`python killed_cli.py MARKS ARGV…`: MARKS is a file of events that were deadly before. Nothing of
the product is changed but the listener of its journal.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from hubtools.cli.main import main
from hubtools.release.journal import Journal

marks = Path(sys.argv[1])
write = Journal.write


def deadly(self: Journal, event: str, target: str = "", **data: object) -> None:
    write(self, event, target, **data)
    label = f"{event} {'' if event in ('release', 'released') else target} {data.get('stage', '')}"
    known = marks.read_text().splitlines() if marks.is_file() else []
    if label not in known:
        marks.write_text("\n".join([*known, label]) + "\n")
        os.killpg(0, signal.SIGKILL)


Journal.write = deadly  # type: ignore[method-assign]
main(sys.argv[2:])
