"""A server in a process group of its own: started, waited for, and ended whatever happens."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hubtools.errors import EnvironmentFailure
from hubtools.evaluation.guard import GRACE
from hubtools.progress import Progress

_SECRET = re.compile(r"TOKEN|_KEY$|SECRET|PASSWORD", re.IGNORECASE)
_ERROR = re.compile(r"\b\w*(?:Error|Exception|Interrupt)\b: ")


def free_port() -> int:
    """A port of the loopback address that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(
    argv: Sequence[str], env: Mapping[str, str], log: Path, *, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """`argv` under a guard; on leaving, it and all its children are gone.

    Args:
        argv: the server.
        env: set on top of our environment, which loses its tokens and keys: servers print much.
        log: what the server says is appended.
        cwd: where it runs.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    kept = {name: text for name, text in os.environ.items() if not _SECRET.search(name)}
    with log.open("ab") as story:
        guard = subprocess.Popen(
            [sys.executable, "-P", "-m", "hubtools.evaluation.guard", *argv],
            stdin=subprocess.PIPE,
            stdout=story,
            stderr=story,
            env={**kept, "PYTHONSAFEPATH": "1", **env},
            cwd=cwd,
            start_new_session=True,  # Ctrl-C is for us; we end it in order
        )
    assert guard.stdin is not None
    try:
        yield guard
    finally:
        guard.stdin.close()
        try:
            guard.wait(GRACE + 5)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()


def wait_until_ready(
    guard: subprocess.Popen[bytes],
    url: str,
    *,
    log: Path,
    since: int,
    timeout: float,
    what: str,
    progress: Progress,
) -> None:
    """Return when `url` answers 200.

    Args:
        guard: of the server.
        url: health page.
        log: where the server speaks.
        since: bytes that were in it before.
        timeout: seconds.
        what: for the progress line.
        progress: told the seconds that have passed.

    Raises:
        EnvironmentFailure: HT437 the server ended, or did not answer in time.
    """
    import httpx

    begin = time.monotonic()
    with httpx.Client(trust_env=False, timeout=5) as client:
        while True:
            if guard.poll() is not None:
                raise _not_started(f"ended (exit code {guard.returncode})", log, since)
            with contextlib.suppress(httpx.TransportError):
                if client.get(url).status_code == 200:
                    return
            waited = time.monotonic() - begin
            if waited > timeout:
                raise _not_started(f"was not ready after {timeout:g} s", log, since)
            progress(what, int(waited), None, "seconds")
            time.sleep(min(0.02 + waited / 10, 1.0))


def _not_started(how: str, log: Path, since: int) -> EnvironmentFailure:
    return EnvironmentFailure(
        "HT437",
        f"the engine's server {how}",
        where=str(log),
        detail=(*_reasons(log, since), "Nothing was asked."),
        next=f"read {log}; correct the engine's options, then run the same command again",
    )


def _reasons(log: Path, since: int) -> list[str]:
    """The first error that the log tells, which is the cause, and its last lines."""
    with log.open("rb") as story:
        story.seek(since)
        lines = [line.strip() for line in story.read().decode(errors="replace").splitlines()]
    lines = [line[:300] for line in lines if line]
    first = [line for line in lines if _ERROR.search(line)][:1]
    return [*first, *(line for line in lines[-3:] if line not in first)]


def first_word(url: str, served_name: str, log: Path, since: int) -> dict[str, Any]:
    """What the server says of itself in its answer to one token: model, system_fingerprint.

    A server may be up while the engine behind it is not.

    Args:
        url: up to `/v1`.
        served_name: the model to ask for.
        log: where the server speaks.
        since: bytes that were in it before.

    Raises:
        EnvironmentFailure: HT437 it cannot answer.
    """
    import httpx

    body = {"model": served_name, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
    try:
        with httpx.Client(trust_env=False, timeout=300) as client:
            response = client.post(f"{url}/completions", json=body)
            data = response.raise_for_status().json()
            return {key: data.get(key) for key in ("model", "system_fingerprint")}
    except (httpx.HTTPError, ValueError, AttributeError) as error:
        raise EnvironmentFailure(
            "HT437",
            f"the engine's server is up but cannot write a token: {error}",
            where=url,
            detail=(*_reasons(log, since), "Nothing was asked."),
            next=f"read {log}; correct the engine's options, then run the same command again",
        ) from error
