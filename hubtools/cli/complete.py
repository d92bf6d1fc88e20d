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


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Repo ids, member ids (`r2e/s50`) and family folders of the manifests in reach.

    Give it to an argument as `shell_complete`.
    """
    from click.shell_completion import CompletionItem

    names: dict[str, str] = {}
    for folder, family in _families():
        about = f"family {family.manifest.family.id}"
        names |= {member.repo: f"{about}, {member.id}" for member in family.members}
        names |= {member.id: f"{about}, {member.repo}" for member in family.members}
        names[str(folder)] = f"{about}, all {len(family.members)}"
    return [
        CompletionItem(name, help=about)
        for name, about in names.items()
        if name.startswith(incomplete)
    ]


def _families() -> Iterator[tuple[Path, Family]]:
    """The manifest here and those under `cards/`; one that does not read completes nothing."""
    from hubtools.family.manifest import FILE, read_family

    for path in [*Path().glob(FILE), *sorted(Path("cards").glob(f"*/{FILE}"))]:
        try:
            yield path.parent, read_family(path)
        except HubtoolsError:  # TAB has nowhere to say so; the command itself will
            continue
