"""Work that may die (merging, serving, evaluating) runs in child processes.

A child writes one JSON object a line on stdout (progress and its result) and its story on stderr,
which goes to a log file. It dies with its parent: the parent holds the write end of its stdin.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hubtools.errors import (
    AuthError,
    CheckError,
    EnvironmentFailure,
    HubtoolsError,
    UsageError,
)
from hubtools.progress import Progress, silent

ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""For the environment of a child whose sums must not depend on the number of cores."""

_BY_EXIT = {2: UsageError, 3: CheckError, 4: AuthError}


def run_child(
    module: str | Path,
    job: Mapping[str, Any],
    *,
    log: Path,
    what: str,
    progress: Progress = silent,
    python: str = sys.executable,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run `python -m module`, hand it `job` as one JSON line on stdin, return its result object.

    A path is run as a script: for a `python` of another environment, which has no hubtools.

    Lines it prints: `{"progress": [label, done, total, unit]}`, `{"error": {...}}` (the JSON of a
    HubtoolsError) and finally `{"result": {...}}`. Anything else on stdout goes to the log.

    Raises:
        HubtoolsError: the child's own error, rebuilt with its id and exit code.
        EnvironmentFailure: HT904 when it died without one (killed, out of memory), with the log.
    """
    with Child(module, log=log, python=python, env=env) as child:
        return child.run(job, what=what, progress=progress)


class Child:
    """A child process that imports what it needs while its job is still being planned.

    Leaving the `with` block ends it, whether it had a job or not.

    Args:
        module: run as `python -m module`; it ends in `child_main`. A path is run as a script.
        log: where it tells its story; without a job it leaves no empty one behind.
        python: the interpreter.
        env: added to the environment.
        early: modules that it imports before it reads its job, when they are installed.
    """

    def __init__(
        self,
        module: str | Path,
        *,
        log: Path,
        python: str = sys.executable,
        env: Mapping[str, str] | None = None,
        early: Sequence[str] = (),
    ) -> None:
        self._log, self._began, self._used = log, log.exists(), False
        log.parent.mkdir(parents=True, exist_ok=True)
        runs = ["-m", module] if isinstance(module, str) else [str(module)]
        with log.open("ab") as story:
            self._process = subprocess.Popen(
                # -P: a tokenizers.py in the user's folder is not ours
                [python, "-P", *runs, *early],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=story,
                # Passive: threads that spin at barriers slow each other tenfold on a busy machine.
                env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ, **(env or {})},
            )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        child = self._process
        assert child.stdin is not None
        assert child.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it ended with the job still in the buffer
            child.stdin.close()
        if kind is not None or not self._used:
            child.terminate()
        child.wait()
        child.stdout.close()
        if not self._used and not self._began and not self._log.stat().st_size:
            self._log.unlink()

    def run(
        self, job: Mapping[str, Any], *, what: str, progress: Progress = silent
    ) -> dict[str, Any]:
        """Hand over the one job; result and errors as for `run_child`."""
        child, self._used = self._process, True
        assert child.stdin is not None
        assert child.stdout is not None
        result: dict[str, Any] | None = None
        failure: dict[str, Any] | None = None
        with self._log.open("ab") as story:
            try:
                child.stdin.write(json.dumps(job).encode() + b"\n")
                child.stdin.flush()
            except BrokenPipeError:
                story.write(b"the child ended before it read its job\n")
            for line in child.stdout:
                event = _event(line)
                if event is None:
                    story.write(line)
                elif "progress" in event:
                    progress(*event["progress"])
                elif "error" in event:
                    failure = event["error"]
                elif "result" in event:
                    result = event["result"]
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        child.wait()
        if failure is not None:
            raise rebuilt_error(failure)
        if child.returncode != 0 or result is None:
            raise _died(child.returncode, what, self._log)
        return result


@contextlib.contextmanager
def no_garbage() -> Iterator[None]:
    """Imports without looking for garbage, a seventh of the time that torch and its like take."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def passing_log() -> Iterator[Path]:
    """A log for a child that leaves nothing else: it stays only when an error sends the user there.

    It lies in the folder for temporary files.
    """
    handle, name = tempfile.mkstemp(prefix="hubtools-", suffix=".log")
    os.close(handle)
    named = False
    try:
        yield Path(name)
    except HubtoolsError as error:
        named = name in f"{error.where} {error.next}"
        raise
    finally:
        if not named:
            os.unlink(name)


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    known = {"progress", "error", "result"}
    return event if isinstance(event, dict) and known & event.keys() else None


def rebuilt_error(data: Mapping[str, Any]) -> HubtoolsError:
    """The HubtoolsError that `HubtoolsError.to_json` described, in the parent."""
    kind = _BY_EXIT.get(int(data["exit_code"]), EnvironmentFailure)
    return kind(
        data["id"],
        data["message"],
        where=data["where"],
        detail=data["detail"],
        next=data["next"],
    )


def _died(code: int, what: str, log: Path) -> EnvironmentFailure:
    if code < 0:
        name = signal.Signals(-code).name
        how = f"{name}: most likely out of memory" if name == "SIGKILL" else name
    else:
        how = f"exit code {code}"
    tail = log.read_text(errors="replace").strip().splitlines()[-3:]
    return EnvironmentFailure(
        "HT904",
        f"{what}: the child process ended without a result ({how})",
        where=str(log),
        detail=tail,
        next=f"read {log}, then run the same command again (finished work is kept)",
    )


def child_main(work: Any) -> None:
    """Body of a child module's `__main__`: read the job, call `work(job, progress)`, report.

    `work` returns the result object; a HubtoolsError becomes the `error` line. Exits when the
    parent goes away. Modules named as arguments are imported before the job is read.
    """
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries print to stdout; that is not our protocol
    with no_garbage():
        for name in sys.argv[1:]:
            with contextlib.suppress(ImportError):  # whoever needs it says so
                importlib.import_module(name)
    line = sys.stdin.readline()
    if not line:  # the plan failed: there is no job
        os._exit(0)
    job = json.loads(line)
    threading.Thread(target=_die_with_parent, daemon=True).start()

    def progress(label: str, done: int, total: int | None, unit: str) -> None:
        out.write(json.dumps({"progress": [label, done, total, unit]}) + "\n")

    try:
        out.write(json.dumps({"result": work(job, progress)}) + "\n")
    except HubtoolsError as error:
        out.write(json.dumps({"error": error.to_json()}) + "\n")
        out.flush()
        os._exit(int(error.exit_code))
    out.flush()
    sys.stderr.flush()
    os._exit(0)  # at a slow shutdown the parent's end of file would otherwise come first


def _die_with_parent() -> None:
    # Unbuffered read: a buffered one would hold a lock that interpreter shutdown waits for.
    while os.read(0, 1):
        pass
    os._exit(1)
