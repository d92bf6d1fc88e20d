"""What every stage can reach: the family, the targets, the state on disk, the Hub."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hubtools.digests import DigestCache
from hubtools.family.manifest import Family, Member
from hubtools.progress import Progress, silent
from hubtools.release.freed import Freed
from hubtools.release.journal import Journal
from hubtools.release.store import Store
from hubtools.resources import template_roots

if TYPE_CHECKING:
    from hubtools.hub.model import RemoteState
    from hubtools.hub.session import Session

BASE = "base"
"""The target name of the base model: evaluated beside the members, never published."""

Done = dict[tuple[str, str], Mapping[str, Any]]
"""Outputs of finished stages by (stage, target)."""


@dataclass
class Release:
    """One run of the pipeline.

    Args:
        family: the manifest that was read.
        targets: the members that were named; the others only lend their facts.
        state: `.hubtools/` beside the manifest: store, journal, logs, receipts; not weights.
        session: the Hub, None for work that stays on this machine.
        hub: what the plan calls it: its URL, or `local` for the embedded one.
        remotes: state of each repo when the plan was made.
        base_files: what the base's files were held against: `hub`; `cache`, a snapshot of the
            commit from a Hub on this machine; `local` (nothing); or not read.
        project: where the command runs; its `templates/` overrides the others.
        failed: members left behind in this run.
        base: the base model's folder when it came from the Hub rather than the manifest.
        freed: weights that were deleted once they were published.
        weights: whether made weights stay once they are published.
    """

    family: Family
    targets: tuple[Member, ...]
    state: Path
    store: Store
    journal: Journal
    digests: DigestCache
    session: Session | None = None
    hub: str = ""
    remotes: dict[str, RemoteState] = field(default_factory=dict)
    progress: Progress = silent
    note: Callable[[str], None] = lambda text: None
    done: Done = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    base: Path | None = None
    base_files: Literal["", "hub", "cache", "local"] = ""
    project: Path | None = None
    freed: Freed = field(kw_only=True)
    weights: Literal["keep", "delete"] = "keep"

    def templates(self) -> tuple[Path, ...]:
        """Template folders in override order."""
        return template_roots(self.project, self.family.root)

    @property
    def base_member(self) -> Member:
        """The base model in a member's clothes, so that suites run on it as on any other."""
        table = self.family.manifest.family
        return Member(BASE, BASE, "", BASE, table.base.repo, None, self.base_path(), self.state)

    def base_path(self) -> Path | None:
        """The base's local copy, when the manifest names one or it was downloaded before."""
        table = self.family.manifest.family.base
        return self.family.resolve(table.path) if table.path else self.base

    def needs_base(self) -> bool:
        """Whether any stage reads the base's files."""
        table = self.family.manifest.family
        if table.kind != "full" or table.suites:
            return True
        return any(m.checkpoint is not None and lacks_config(m.checkpoint) for m in self.targets)

    def lacks_base(self) -> bool:
        """Whether the base is read and its files are not on this machine."""
        path = self.base_path()
        return self.needs_base() and (path is None or not path.is_dir())

    def relative(self, path: Path) -> str:
        """A path as records and facts name it: relative to the manifest where it is below it."""
        resolved = path.resolve()
        root = self.family.root
        return str(resolved.relative_to(root) if resolved.is_relative_to(root) else resolved.name)

    def stored(self, path: Path) -> str:
        """A path as the store keeps it: a project folder that is moved stays valid."""
        resolved = path.resolve()
        root = self.family.root
        return str(resolved.relative_to(root) if resolved.is_relative_to(root) else resolved)

    def at(self, stored: str) -> Path:
        """Inverse of `stored`."""
        return self.family.root / stored

    @property
    def scratch(self) -> Path:
        """Where adapters that came as pickles are kept in another format."""
        return self.state / "converted"

    def log(self, name: str) -> Path:
        """A child process's log file."""
        return self.state / "logs" / f"{name.replace('/', '-')}.log"


def lacks_config(checkpoint: Path) -> bool:
    """Whether this is a trainer's run without a config.json, which then is the base's."""
    from hubtools.checkpoint.ingesting.find import find_source
    from hubtools.errors import CheckError
    from hubtools.release.ingested import is_ingested

    if not is_ingested(checkpoint):
        return False
    try:
        source = find_source(checkpoint)
    except CheckError:  # told by whoever takes it in
        return False
    return source.kind != "lora" and source.side is None


def open_release(
    family: Family,
    targets: tuple[Member, ...],
    *,
    clock: Callable[[], float],
    session: Session | None = None,
    hub: str = "",
    progress: Progress = silent,
    note: Callable[[str], None] = lambda text: None,
    project: Path | None = None,
) -> Release:
    """A release over the state beside the manifest."""
    state = family.root / ".hubtools"
    return Release(
        family=family,
        targets=targets,
        state=state,
        store=Store(state / "store"),
        journal=Journal(state / "journal.jsonl", clock),
        digests=DigestCache(state / "digests.json"),
        freed=Freed(state / "freed.json"),
        weights=family.manifest.release.weights,
        session=session,
        hub=hub or (session.endpoint if session else ""),
        progress=progress,
        note=note,
        project=project,
    )
