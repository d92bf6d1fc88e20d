"""How a command ends: errors printed with their fix, exit codes, crash reports.

Imported by every run, `--help` too: what only a failure needs is imported when it happens.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Sequence
from typing import Any

import click

from hubtools import __version__
from hubtools.cli.output import ANSWERED, Color, paint, use_color
from hubtools.cli.text import one_line, redact
from hubtools.errors import EnvironmentFailure, ExitCode, HubtoolsError, UsageError

EXTRAS = {
    "merge": {"peft", "safetensors", "torch", "transformers", "accelerate"},
    "eval": {"httpx"},
    "hub": {"lz4", "multipart", "starlette", "uvicorn", "blake3"},
}
"""Which extra of the distribution brings an import that may be missing."""

CHOICES: tuple[Color, ...] = ("always", "never")

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}
"""What a disk answers when it takes no more: never a bug, wherever it is met."""

_REFUSED = {
    errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EIO,
    errno.EMFILE, errno.ENFILE,
}  # fmt: skip
"""What a system answers about a place that it does not let us use: the user's to mend."""

READER_GONE = 141
"""What a shell reports for a program that a closed pipe ended (128 + SIGPIPE)."""


class Interrupted(HubtoolsError):
    """Ctrl-C: exit 130."""

    exit_code = ExitCode.INTERRUPTED


def run(cli: click.Command, argv: Sequence[str]) -> int:
    """Run `cli` on `argv` and return the exit code; every failure is printed here, once.

    On stderr: `error[ID]: message`, the place, the details, `next:`. With `--json` also
    `{"schema": "hubtools.error/1", "error": {…}}` on stdout, unless the command already printed
    its object there (a check that found something prints what it found).
    """
    meta: dict[str, Any] = {}
    _open_streams()
    # Not cli.main(): Click would end the process by itself, and in silence, on any EPIPE.
    try:
        if instruction := os.environ.get("_HUBTOOLS_COMPLETE"):
            from click.shell_completion import shell_complete

            return shell_complete(cli, {}, "hubtools", "_HUBTOOLS_COMPLETE", instruction)
        with cli.make_context("hubtools", list(argv)) as context:
            meta = context.meta
            cli.invoke(context)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as help_wanted:
        if "--json" in argv:
            return _report(_usage(click.UsageError("Missing command.")), argv, answered=False)
        click.echo(help_wanted.format_message(), err=True)
        return int(ExitCode.USAGE)
    except (Exception, KeyboardInterrupt) as problem:
        if isinstance(problem, BrokenPipeError) and _reader_gone():
            return READER_GONE
        return _report(_as_error(problem, argv), argv, answered=ANSWERED in meta)


def _as_error(problem: BaseException, argv: Sequence[str]) -> HubtoolsError:
    """What a person reads about any way to fail.

    Raises:
        BaseException: the problem itself, when it is a bug and HUBTOOLS_DEBUG=1.
    """
    if isinstance(problem, HubtoolsError):
        return problem
    if isinstance(problem, click.UsageError):
        return _usage(problem)
    if isinstance(problem, click.ClickException):
        return EnvironmentFailure("HT001", problem.format_message())
    if isinstance(problem, click.Abort | KeyboardInterrupt):
        return _stopped(problem)
    if isinstance(problem, OSError) and problem.errno in _NO_ROOM:
        from hubtools.files import disk_error

        return disk_error(problem, str(problem.filename or "stdout"))
    if isinstance(problem, OSError) and problem.errno in _REFUSED and problem.filename:
        return _refused_by_system(problem)
    if os.environ.get("HUBTOOLS_DEBUG") == "1":
        raise problem
    return _missing_extra(problem) or _crashed(problem, argv)


def show(error: HubtoolsError, color: bool) -> str:
    """The lines a person reads, without a final newline."""
    lines = [paint(f"error[{error.id}]: {one_line(error.message)}", color)]
    if error.where:
        lines.append(f"  at {one_line(error.where)}")
    lines += [f"  {one_line(text)}" for text in error.detail]
    if error.next:
        lines.append(f"  next: {one_line(error.next)}")
    return "\n".join(lines)


def _report(error: HubtoolsError, argv: Sequence[str], *, answered: bool) -> int:
    options = argv[: argv.index("--")] if "--" in argv else argv
    told = show(error, use_color(_color(options), sys.stderr)) + "\n"
    data = ""
    if "--json" in options and not answered:
        import json

        data = redact(json.dumps({"schema": "hubtools.error/1", "error": error.to_json()})) + "\n"
    for stream, text in ((sys.stderr, told), (sys.stdout, data)):
        try:
            stream.write(text)
            stream.flush()
        except OSError:  # nobody reads it, or there is no room: the exit code is what is left
            _to_nowhere(stream.fileno())
    return int(error.exit_code)


def _open_streams() -> None:
    """A caller may have closed a standard stream: what goes there, goes nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: half a surrogate pair


def _to_nowhere(descriptor: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _color(options: Sequence[str]) -> Color:
    given = " ".join(options).replace("--color=", "--color ")
    return next((choice for choice in CHOICES if f"--color {choice}" in given), "auto")


def _usage(error: click.UsageError) -> UsageError:
    context = error.ctx
    path = context.command_path if context is not None else "hubtools"
    message = " ".join(
        error.format_message().split()
    )  # Click puts long lists on lines of their own
    return UsageError("HT001", message, next=f"{path} --help")


def _stopped(stop: BaseException) -> HubtoolsError:
    causes = (stop, stop.__cause__, stop.__context__)
    if any(isinstance(cause, KeyboardInterrupt) for cause in causes):
        return Interrupted(
            "HT991", "interrupted", next="run the same command again (finished work is kept)"
        )
    return EnvironmentFailure(
        "HT992", "stopped: the answer was no", detail=("Nothing was published.",)
    )


def _refused_by_system(problem: OSError) -> EnvironmentFailure:
    import shlex

    name = os.fsdecode(problem.filename)
    return EnvironmentFailure(
        "HT905",
        f"the system does not let this be used: {problem.strerror}",
        where=name,
        detail=("Finished work is kept.",),
        next=f"ls -ld {shlex.quote(name)}, correct it, then run the same command again",
    )


def _missing_extra(bug: BaseException) -> HubtoolsError | None:
    if not isinstance(bug, ModuleNotFoundError) or bug.name is None:
        return None
    module = bug.name.partition(".")[0]
    extra = next((name for name, modules in EXTRAS.items() if module in modules), None)
    if extra is None:
        return None
    return EnvironmentFailure(
        "HT993",
        f"this command needs the Python package {module}, which is not installed",
        detail=("Nothing was changed.",),
        next=f"pip install 'hf-hubtools[{extra}]'",
    )


def _crashed(bug: BaseException, argv: Sequence[str]) -> HubtoolsError:
    what = f"{type(bug).__name__}: {str(bug).strip().partition(chr(10))[0]}"
    return EnvironmentFailure(
        "HT990",
        f"hubtools has a bug ({what})",
        detail=(_crash_report(bug, argv),),
        next="set HUBTOOLS_DEBUG=1 and run it again to see the traceback",
    )


def _crash_report(bug: BaseException, argv: Sequence[str]) -> str:
    import platform
    import traceback
    from datetime import UTC, datetime
    from pathlib import Path

    path = Path(".hubtools", "crash", f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.txt")
    story = "\n".join(
        (
            f"hubtools {__version__}, Python {platform.python_version()}, {platform.platform()}",
            f"command: hubtools {' '.join(argv)}",
            "",
            "".join(traceback.format_exception(bug)),
        )
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(redact(story), encoding="utf-8")
    except OSError as error:
        return f"The crash report could not be written ({error.strerror})."
    return f"Crash report (tokens removed): {path}"


def _reader_gone() -> bool:
    """Whether stdout or stderr lost its reader; if so, what is left to write goes nowhere."""
    lost = [stream.fileno() for stream in (sys.stdout, sys.stderr) if _unread(stream.fileno())]
    for descriptor in lost:
        _to_nowhere(descriptor)
    return bool(lost)


def _unread(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(event & select.POLLERR for _, event in poll.poll(0))
