"""Child process that runs a server and ends it, with all its children, when our parent is gone.

The parent holds the write end of stdin: when it ends, however it ends, we read the end of file.
The server has a process group of its own, so that its workers end with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

GRACE = 10.0
"""Seconds between asking a server to end and ending it."""


def main(argv: list[str]) -> int:
    """Run `argv` until it ends or stdin does; its exit code."""
    server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=_end_with_parent, args=(server,), daemon=True).start()
    code = server.wait()
    _signal(server.pid, signal.SIGKILL)  # workers that outlived it
    return code if code >= 0 else 128 - code


def _end_with_parent(server: subprocess.Popen[bytes]) -> None:
    while os.read(0, 1):
        pass
    _signal(server.pid, signal.SIGTERM)
    time.sleep(GRACE)  # main() returns earlier when the server does
    _signal(server.pid, signal.SIGKILL)


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
