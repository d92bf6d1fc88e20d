"""TAB for the names a manifest declares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubtools.errors import HubtoolsError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from hubtools.family.manifest import Family


def members(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Repo ids, and once a name like `r2e/` is typed member ids, of the manifests in reach.

    Give it to an argument as `shell_complete`.
    """
    from click.shell_completion import CompletionItem

    known = [(member, family) for family in _families() for member in family.members]
    names = [(member.repo, family) for member, family in known]
    names += [(member.id, family) for member, family in known]
    return [
        CompletionItem(name, help=f"family {family.manifest.family.id}")
        for name, family in dict(names).items()
        if name.startswith(incomplete)
    ]


def families(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of the families in reach. Give it to an argument as `shell_complete`."""
    from click.shell_completion import CompletionItem

    ids = (family.manifest.family.id for family in _families())
    return [CompletionItem(name) for name in dict.fromkeys(ids) if name.startswith(incomplete)]


def _families() -> Iterator[Family]:
    """The manifest here, or those under `cards/`; one that does not read completes nothing."""
    from hubtools.family.manifest import FILE, read_family

    here = Path(FILE)
    for path in [here] if here.exists() else sorted(Path("cards").glob(f"*/{FILE}")):
        try:
            yield read_family(path)
        except HubtoolsError:  # TAB has nowhere to say so; the command itself will
            continue
