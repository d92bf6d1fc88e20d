"""Links among the files that are carried along: none may bring in a file from elsewhere.

Adapters and runs come from strangers too; a `tokenizer.json` that is a link to a private key would
be copied and published. A snapshot in the Hugging Face cache consists of links into the blobs of
its repo: those are fine. So are links to weights, which often lie on other disks: they are read as
safetensors, or not at all.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from hubtools.errors import CheckError


def require_inside(file: Path, home: Path) -> None:
    """Refuse a file beside the weights that really lies outside of its directory.

    Args:
        file: somewhere below `home`, by name.
        home: the directory it belongs to; may itself be reached by a link.

    Raises:
        CheckError: HT156 a link that leaves `home` (and the blobs of its repo in the cache), or
            leads nowhere.
    """
    inside = home.resolve()
    blobs = [place.parent / "blobs" for place in inside.parents if place.name == "snapshots"]
    try:
        target = file.resolve(strict=True)
        if any(map(target.is_relative_to, (inside, *blobs))):
            return
        why = f"it leads to {target}"
        copy = f"cp --remove-destination {shlex.quote(str(target))} {shlex.quote(str(file))}"
        fix = f"{copy}  # if that file may become public; else remove the link"
    except (OSError, RuntimeError):  # nothing there, or a circle
        why, fix = "it leads nowhere", f"rm {shlex.quote(str(file))}, or restore what it led to"
    raise CheckError(
        "HT156",
        f"{file.name} is a link out of its directory: what lies there is not published",
        where=str(file),
        detail=(why, "Nothing was written."),
        next=fix,
    )
