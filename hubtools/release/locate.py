"""From what the user typed to a family and its members."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hubtools.errors import UsageError
from hubtools.family.manifest import FILE, Family, Member, nearest, read_family


def locate(
    targets: Sequence[str], family: Path | None, start: Path
) -> tuple[Family, tuple[Member, ...]]:
    """The family that `targets` belong to, and the members they name.

    Args:
        targets: a family folder or `family.toml` (all its members), member ids, repo ids; none for
            all members of the family found from `start`.
        family: where the manifest is, when it was said.
        start: folder to look in: `family.toml`, then `cards/*/family.toml`.

    Raises:
        UsageError: HT003 no manifest, HT005 no such member (with the nearest name), HT004 broken.
    """
    names = list(targets)
    if family is None and names and _is_family(start / names[0]):
        family = start / names.pop(0)
    if family is not None:
        found = read_family(family)
        return found, _members(found, names)
    candidates = [read_family(path) for path in _manifests(start)]
    if not names:
        if len(candidates) == 1:
            return candidates[0], candidates[0].members
        listed = ", ".join(str(c.path.parent) for c in candidates) or "none"
        raise UsageError(
            "HT003",
            "say which family" if candidates else "no family manifest here",
            where=str(start),
            detail=(f"manifests found: {listed}",),
            next="hubtools release FAMILY_DIR, or hubtools release owner/name --from DIR",
        )
    for candidate in candidates:
        if any(names[0] in (member.id, member.repo) for member in candidate.members):
            return candidate, _members(candidate, names)
    known = [word for c in candidates for m in c.members for word in (m.id, m.repo)]
    raise UsageError(
        "HT005",
        f"no family here has a member {names[0]!r}{nearest(names[0], known)}",
        where=str(start),
        detail=(f"looked in {FILE} and cards/*/{FILE}",),
        next=f"hubtools release {names[0]} --from DIR, or --family DIR",
    )


def _is_family(path: Path) -> bool:
    return path.name == FILE or (path / FILE).is_file()


def _manifests(start: Path) -> list[Path]:
    own = [start / FILE] if (start / FILE).is_file() else []
    return own + sorted(start.glob(f"cards/*/{FILE}"))


def _members(family: Family, names: Sequence[str]) -> tuple[Member, ...]:
    if not names:
        return family.members
    named = [family.member(name) for name in names]
    return tuple(member for member in family.members if member in named)
