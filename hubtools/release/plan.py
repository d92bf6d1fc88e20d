"""The plan: what will happen, as a value that can be printed, saved and compared. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeGuard

from hubtools.digests import sha256_json
from hubtools.errors import Finding
from hubtools.sizes import size_words

SCHEMA = "hubtools.plan/1"

Action = Literal["run", "cached", "skip", "waits"]
RepoAction = Literal["create", "update", "in sync", "waits", "unknown"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One stage for one target.

    Args:
        reason: why it is skipped, or what it waits for; empty otherwise.
        key: what its result is remembered under; empty while it waits.
    """

    stage: str
    target: str
    action: Action
    reason: str = ""
    key: str = ""

    def words(self) -> str:
        """How a table shows it."""
        return f"{self.action}: {self.reason}" if self.reason else self.action


@dataclass(frozen=True, slots=True)
class RepoChange:
    """What a push would do to one repo.

    Args:
        head: the commit the plan was made on; empty when the repo does not exist.
        send: bytes of the files that are added or changed.
        overwrites: files there that no release of ours wrote, or that were changed since.
        card: `new`, `differs`, `same`, or `waits`.
    """

    repo: str
    target: str
    action: RepoAction
    head: str = ""
    add: int = 0
    change: int = 0
    delete: int = 0
    send: int = 0
    card: str = ""
    visibility: str = ""
    overwrites: tuple[str, ...] = ()

    def words(self) -> str:
        """How a table shows it."""
        if self.action in ("in sync", "unknown"):
            return self.action
        if self.action == "waits":
            return "create repo" if not self.head else "waits"
        files = f"+{self.add} ~{self.change} -{self.delete}"
        verb = "create repo, " if self.action == "create" else ""
        return f"{verb}{files} files, {size_words(self.send)}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a release would do for the named targets.

    Args:
        targets: member ids that were named.
        sisters: members that were not named and whose published cards would change.
    """

    family: str
    hub: str
    targets: tuple[str, ...]
    cells: tuple[Cell, ...]
    repos: tuple[RepoChange, ...]
    findings: tuple[Finding, ...] = ()
    sisters: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """First 8 hex digits of the digest of all that is planned."""
        return sha256_json(self._content())[:8]

    @property
    def pending(self) -> bool:
        """Whether anything is left to do."""
        local = any(cell.action in ("run", "waits") for cell in self.cells)
        return local or any(change.action != "in sync" for change in self.repos)

    def cell(self, stage: str, target: str) -> Cell | None:
        """The cell of one stage and target."""
        for cell in self.cells:
            if (cell.stage, cell.target) == (stage, target):
                return cell
        return None

    def errors(self) -> tuple[Finding, ...]:
        """The findings that stop a release."""
        return tuple(finding for finding in self.findings if finding.level == "error")

    def to_json(self) -> dict[str, Any]:
        """The body of `plan --json` and of a plan file."""
        return {"id": self.id, "pending": self.pending, **self._content()}

    def _content(self) -> dict[str, Any]:
        return {
            "family": self.family,
            "hub": self.hub,
            "targets": list(self.targets),
            "stages": [asdict(cell) for cell in self.cells],
            "repos": [{**asdict(c), "overwrites": list(c.overwrites)} for c in self.repos],
            "findings": [finding.to_json() for finding in self.findings],
            "sisters": list(self.sisters),
        }


def is_saved_plan(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether a JSON value is a plan that `hubtools plan --plan-out` saved."""
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        return False
    targets, rows = value.get("targets"), {"stages": ("stage", "target"), "repos": ("repo",)}
    return (
        isinstance(targets, list)
        and all(isinstance(target, str) for target in targets)
        and all(
            isinstance(value.get(name), list)
            and all(
                isinstance(row, dict) and all(isinstance(row.get(key), str) for key in keys)
                for row in value[name]
            )
            for name, keys in rows.items()
        )
    )


def differences(planned: Mapping[str, Any], now: Plan) -> list[str]:
    """What a saved plan says that is no longer so, one line each; empty when it still holds."""
    found = []
    current = now.to_json()
    for name in ("family", "hub", "targets"):
        if planned.get(name) != current[name]:
            found.append(f"{name}: planned {planned.get(name)}, now {current[name]}")
    for name, keys in (("stages", ("stage", "target")), ("repos", ("repo",))):
        before = {tuple(row[k] for k in keys): row for row in planned.get(name, [])}
        after = {tuple(row[k] for k in keys): row for row in current[name]}
        for row_key in sorted(before.keys() | after.keys()):
            if before.get(row_key) != after.get(row_key):
                was, is_ = (side.get(row_key, {}) for side in (before, after))
                changed = [k for k in {**was, **is_} if was.get(k) != is_.get(k)]
                found.append(f"{' '.join(row_key)}: {', '.join(sorted(changed))} changed")
    return found
