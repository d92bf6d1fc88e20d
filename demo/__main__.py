"""`python -m demo`: base, teacher, training, then a release as a user would run it."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from demo.base import make_base
from demo.family import record, write_family
from demo.hub import ROOT, publish_base
from demo.shell import Shell
from demo.state import DemoError, State, shown
from demo.teacher import collect
from demo.train import train
from hubtools.cli.failure import show
from hubtools.cli.hub import DEFAULT_PORT
from hubtools.cli.output import Output, use_color
from hubtools.errors import EnvironmentFailure, HubtoolsError
from hubtools.files import locked
from hubtools.localhub.server import LocalHub, running

SHOWN = "demo/smol-element-s8"
AGAIN = "run the same command again: it goes on where it stopped"


def main() -> int:
    """Run everything that is not done yet; exit code as of a command."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(".demo"), help="where everything is kept")
    parser.add_argument("--record", action="store_true", help="write the cards to cards/demo")
    options = parser.parse_args()
    output = Output()
    try:
        with locked(options.root / "lock", "the demo"):
            _run(State(options.root, output), keep=options.record)
    except HubtoolsError as error:
        sys.stderr.write(show(error, use_color("auto", sys.stderr)) + "\n")
        return int(error.exit_code)
    except DemoError as error:
        output.note(f"✗ {error}\n  next: {AGAIN}")
        return 1
    except KeyboardInterrupt:
        output.note(f"\n✗ interrupted; {AGAIN}")
        return 130
    return 0


def _run(state: State, *, keep: bool) -> None:
    started, tell = time.monotonic(), state.output.note
    tell(f"Everything of this demo is kept under {shown(state.root)} and can be deleted.")
    family = state.root / "family"
    weights = make_base(state)["weights"]
    collect(state, family, weights)
    train(state, family, weights)
    with _hub(state) as hub:
        tell(f"✓ embedded Hub on {hub.url}, until the demo ends")
        shell = Shell(state, hub)
        revision = publish_base(state, hub, shell, weights)["revision"]
        write_family(state, family, revision=revision, weights=weights)
        _release(state, hub, shell, family)
        if keep:
            shell.run("hubtools", "card", "render", str(family))
            tell(f"✓ recorded: {len(record(family))} files in cards/demo/rendered")
    tell(f"\n✓ the demo took {time.monotonic() - started:.0f} s")
    _closing(state, family)


@contextmanager
def _hub(state: State) -> Iterator[LocalHub]:
    """The embedded Hub, where `hubtools hub serve` puts it, so that the URLs shown stay right."""
    with ExitStack() as stack:
        try:
            server = running(state.root / ROOT, port=DEFAULT_PORT, log=state.log("hub"))
            hub = stack.enter_context(server)
        except EnvironmentFailure as error:
            if error.id != "HT601":
                raise
            hub = stack.enter_context(running(state.root / ROOT, log=state.log("hub")))
        yield hub


def _release(state: State, hub: LocalHub, shell: Shell, family: Path) -> None:
    """The commands of a user: look, verify, release, load; and again."""
    folder = str(family)
    shell.run("hubtools", "provenance", "verify", folder)
    shell.run("hubtools", "plan", folder, "--hub", hub.url)
    shell.run("hubtools", "release", folder, "--hub", hub.url, "--yes")
    _load(state, shell)
    shell.run("hubtools", "release", folder, "--hub", hub.url, "--yes")


def _load(state: State, shell: Shell) -> None:
    """One sister, by name, in a process with a cache of its own."""
    cache = state.root / "reader"
    shutil.rmtree(cache, ignore_errors=True)
    shell.run("python", "-m", "demo.load", SHOWN, env={"HF_HOME": str(cache)})
    shutil.rmtree(cache, ignore_errors=True)


def _closing(state: State, family: Path) -> None:
    root, folder = (shlex.quote(shown(path)) for path in (state.root / ROOT, family))
    program = shlex.quote(shown(Path(sys.executable).with_name("hubtools")))
    for line in (
        "Look at a card:",
        f"  {program} card show {SHOWN} --family {folder}",
        "Look at the repos, in a browser or with any client:",
        f"  {program} hub serve --root {root}",
        f"  then http://127.0.0.1:{DEFAULT_PORT}/{SHOWN}",
    ):
        state.output.note(line)


if __name__ == "__main__":
    raise SystemExit(main())
