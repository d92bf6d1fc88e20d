"""Which Hub a command talks to: the flag's, the settings', or the embedded one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hubtools.cli.output import Output
from hubtools.settings import LOCAL, resolve

if TYPE_CHECKING:
    from hubtools.hub.session import Session


class Connection(NamedTuple):
    """A session (None: no Hub is asked) and what plans and receipts call its Hub."""

    session: Session | None
    hub: str


OFFLINE = Connection(None, "")


@contextmanager
def open_session(output: Output, hub: str | None, state: Path) -> Iterator[Connection]:
    """A session with the chosen Hub; `local` runs the embedded one as long as the command does.

    Args:
        output: told where the embedded Hub keeps its repos.
        hub: the `--hub` flag.
        state: `.hubtools/` of the family, which holds the embedded Hub.
    """
    from hubtools.hub.session import connect

    settings = resolve({"hub": hub})
    if settings.hub != LOCAL:
        yield Connection(connect(settings.hub), settings.hub)
        return
    from hubtools.localhub.server import running

    root = state / "hub"
    with running(root, log=state / "logs" / "hub.log") as server:
        output.note(f"embedded Hub on {server.url} (rehearsal), repos under {root}")
        yield Connection(connect(server.url, token=server.token), LOCAL)
    output.note(f"to look at it again: hubtools hub serve --root {root}")
