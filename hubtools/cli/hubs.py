"""Which Hub a command talks to: the flag's, the settings', or the embedded one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hubtools.cli.output import Output
from hubtools.settings import LOCAL, resolve

if TYPE_CHECKING:
    from hubtools.family.manifest import Family, Member
    from hubtools.hub.session import Session
    from hubtools.release.context import Release


@contextmanager
def opened(
    output: Output,
    family: Family,
    members: tuple[Member, ...],
    hub: str | None,
    *,
    offline: bool = False,
) -> Iterator[Release]:
    """A release of these members, connected to the chosen Hub.

    `--hub local` runs the embedded Hub as long as the command does.

    Args:
        output: hears the story and the progress.
        family: whose state is opened.
        members: the targets.
        hub: the `--hub` flag.
        offline: no Hub is asked.
    """
    from hubtools.release.context import open_release

    state = family.root / ".hubtools"
    with ExitStack() as stack:
        session, name = (None, "") if offline else session_of(output, hub, state, stack)
        yield open_release(
            family,
            members,
            clock=time.time,
            session=session,
            hub=name,
            progress=stack.enter_context(output.progress()),
            note=output.note,
            project=Path.cwd(),
        )
    if name == LOCAL:
        output.note(f"to look at it again: hubtools hub serve --root {state / 'hub'}")


def session_of(
    output: Output, hub: str | None, state: Path, stack: ExitStack
) -> tuple[Session, str]:
    """A session with the chosen Hub, and what the plan calls that Hub.

    Args:
        output: hears of an embedded Hub.
        hub: the `--hub` flag.
        state: the folder in which an embedded Hub keeps its repos and log.
        stack: ends an embedded Hub.
    """
    from hubtools.hub.session import connect

    settings = resolve({"hub": hub})
    if settings.hub != LOCAL:
        return connect(settings.hub), settings.hub
    from hubtools.localhub.server import running

    root = state / "hub"
    server = stack.enter_context(running(root, log=state / "logs" / "hub.log"))
    output.note(f"embedded Hub on {server.url} (rehearsal), repos under {root}")
    return connect(server.url, token=server.token), LOCAL
