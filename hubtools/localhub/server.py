"""Starting the embedded Hub: in the foreground (`serve`), or as a child process (`running`)."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import logging
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubtools.children import rebuilt_error
from hubtools.errors import EnvironmentFailure, UsageError
from hubtools.files import disk_error, locked
from hubtools.localhub.faults import Fault, FaultInjector
from hubtools.localhub.state import LFS_PART, open_hub

if TYPE_CHECKING:
    from starlette.types import ASGIApp


_THREADS = 32


@dataclass(frozen=True, slots=True)
class LocalHub:
    """A Hub that runs in a child process.

    Args:
        url: the endpoint, for `HF_ENDPOINT`.
        token: of the user `local`, who may write to every namespace.
        root: its directory.
        pid: its process id.
    """

    url: str
    token: str
    root: Path
    pid: int

    def set_faults(self, faults: Iterable[Fault]) -> None:
        """Replace the rules of a Hub that was started with `faults` (even an empty list)."""
        body = json.dumps([fault.to_json() for fault in faults]).encode()
        request = urllib.request.Request(f"{self.url}/_faults", data=body, method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()


def serve(
    root: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    xet: bool = True,
    ready: Callable[[str], None] | None = None,
    faults: Iterable[Fault] | None = None,
    lfs_part: int = LFS_PART,
    access_log: bool = True,
) -> None:
    """Serve a Hub directory until SIGINT or SIGTERM.

    Args:
        root: made when it is not there; then its user `local` gets a token, kept in `root/token`.
        host: a loopback address.
        port: 0 takes a free one.
        xet: offer xet storage (the client's default way to upload).
        ready: called with the URL once requests are answered.
        faults: rules for tests; None leaves fault injection out.
        lfs_part: LFS uploads larger than this many bytes come in parts.
        access_log: a line on stderr per request.

    Raises:
        UsageError: HT602 for a host that is not loopback.
        EnvironmentFailure: HT601 when the port is in use, HT603 when it may not be opened, HT604
            without the packages a server needs, HT607 for a database of another kind, HT901 when
            the directory cannot be written, HT903 when it is served already.
    """
    _require_packages()
    _require_loopback(host)
    with _listen(host, port) as listener, _owned(root):
        from hubtools.localhub.app import build_app

        for leftover in root.glob("tmp/*"):
            leftover.unlink()
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{listener.getsockname()[1]}"
        options: dict[str, Any] = {"xet": xet, "lfs_part": lfs_part}
        if xet:
            from hubtools.localhub.xet.app import xet_hash_of

            options["xet_hash"] = lambda sha256: xet_hash_of(root, sha256)
        hub = open_hub(root, url, **options)
        app: ASGIApp = build_app(hub)
        if faults is not None:
            app = FaultInjector(app, faults)
        try:
            _run(app, listener, access_log, lambda: ready(url) if ready else None)
        finally:
            hub.database.close()


@contextmanager
def _owned(root: Path) -> Iterator[None]:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, root) from error
    with locked(root / "lock", f"the embedded Hub in {root}"):
        yield


def _run(
    app: ASGIApp, listener: socket.socket, access_log: bool, ready: Callable[[], None]
) -> None:
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

    handler = {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}
    logging_config = {
        "version": 1,
        "filters": {"paths": {"()": _PathsOnly}},
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(message)s"}},
        "handlers": {"stderr": handler},
        "loggers": {"uvicorn.access": {"filters": ["paths"]}},
        "root": {"handlers": ["stderr"], "level": "INFO"},
    }
    config = uvicorn.Config(
        app,
        log_config=logging_config,
        access_log=access_log,
        timeout_graceful_shutdown=3,
        timeout_keep_alive=60,
        lifespan="off",
        ws="none",
    )

    async def main() -> None:
        # Commits hash whole checkpoints in threads; small requests must not wait for them.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS))
        await Server(config).serve(sockets=[listener])

    asyncio.run(main())


class _PathsOnly(logging.Filter):
    """Keeps queries out of the log: signed URLs are secrets while they last."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten an access record's third argument, the target, to its path."""
        if isinstance(record.args, tuple) and len(record.args) == 5:
            client, method, target, *rest = record.args
            record.args = (client, method, str(target).partition("?")[0], *rest)
        return True


def _require_packages() -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise EnvironmentFailure(
            "HT604",
            f"the embedded Hub needs the package {error.name}",
            next='pip install "hf-hubtools[hub]"',
        ) from error


def _require_loopback(host: str) -> None:
    try:
        fine = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        fine = False
    if not fine:
        raise UsageError(
            "HT602",
            f"the embedded Hub listens on loopback only, not on {host}",
            detail=("It is made for rehearsal, CI and demos, without TLS or rate limits.",),
            next="hubtools hub serve",
        )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's delay off only where the protocol number says TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OverflowError as error:
        listener.close()
        raise UsageError(
            "HT605", f"no such port: {port}", next="hubtools hub serve --port 8976"
        ) from error
    except OSError as error:
        listener.close()
        busy = error.errno == errno.EADDRINUSE
        what = "is in use" if busy else f"cannot be opened: {error.strerror}"
        raise EnvironmentFailure(
            "HT601" if busy else "HT603",
            f"port {port} on {host} {what}",
            detail=("No server was started.",),
            next="hubtools hub serve --port 0 (takes a free port), or end what holds this one",
        ) from error
    return listener


@contextmanager
def running(
    root: Path,
    *,
    port: int = 0,
    xet: bool = True,
    faults: Iterable[Fault] | None = None,
    log: Path,
    lfs_part: int = LFS_PART,
) -> Iterator[LocalHub]:
    """Run a Hub in a child process while the block lasts; it also dies with this process.

    Takes what `serve` takes, and `log`, the file its story is appended to.

    Raises:
        HubtoolsError: what `serve` raises, and HT606 when the child ends before it is ready.
    """
    job = {
        "root": str(root),
        "port": port,
        "xet": xet,
        "lfs_part": lfs_part,
        "faults": None if faults is None else [fault.to_json() for fault in faults],
    }
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as story:
        child = subprocess.Popen(
            [sys.executable, "-m", "hubtools.localhub"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=story,
            bufsize=0,  # nothing is left to flush, and to fail, when the child is gone
            start_new_session=True,  # Ctrl-C ends the client first; this block then ends the server
        )
    try:
        url = _wait_ready(child, job, log)
        yield LocalHub(url, (root / "token").read_text().strip(), root, child.pid)
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()


def _wait_ready(child: subprocess.Popen[bytes], job: Mapping[str, Any], log: Path) -> str:
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(json.dumps(job).encode() + b"\n")
        child.stdin.flush()
    except BrokenPipeError:
        pass  # it ended already: its output below says why
    line = child.stdout.readline()
    event = json.loads(line) if line else {}
    if "error" in event:
        raise rebuilt_error(event["error"])
    if "progress" not in event:
        raise EnvironmentFailure(
            "HT606",
            "the embedded Hub ended before it was ready",
            where=str(log),
            next=f"read {log}, then run the same command again",
        )
    return str(event["progress"][0])
