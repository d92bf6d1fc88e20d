"""The rules that turn one role's counts into a verdict word (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hubtools.provenance.aliases import AliasTable
from hubtools.provenance.counts import Pair, RoleCount, Tally
from hubtools.provenance.names import is_path, pinned, same, shown, snapshot_of

SEVERITY = (
    "RESOLVED", "CONSISTENT", "NAME-ONLY", "ECHO", "PARTIAL",
    "UNVERIFIABLE", "MIXED", "CONTRADICTS-CLAIM", "SUSPECT", "UNREADABLE",
)  # fmt: skip
"""Verdict words, best first; the overall verdict is the worst of the roles'."""


@dataclass(frozen=True, slots=True)
class Hosting:
    """A server that the publisher ran: its names are the operator's own.

    Args:
        served: model ids in the saved answer of `/v1/models`; empty when it was not saved.
        served_sha256: digest of that file.
        weights: digest of the weights, as the operator states it.
    """

    served: tuple[str, ...] = ()
    served_sha256: str = ""
    weights: str = ""


@dataclass(frozen=True, slots=True)
class Judge:
    """The rules, for one claim."""

    claim: str
    requested: str
    aliases: AliasTable
    hosting: Hosting | None

    def role(self, role: RoleCount) -> str:
        """Verdict word of one role."""
        names = role.reported()
        k = names.total()
        if k == 0:
            return "UNVERIFIABLE"
        fits = [self.fits(name, pair) for (_, name), pair in role.pairs.items()]
        if self.claim and not any(fits):
            return "CONTRADICTS-CLAIM"
        if len(names) > 1:
            return "MIXED"
        if k < role.n:
            return "PARTIAL"
        if self.hosting is not None:
            return "NAME-ONLY"
        words = [self.pair(asked, name, pair) for (asked, name), pair in role.pairs.items()]
        return max(words, key=SEVERITY.index)

    def fits(self, name: str, pair: Pair) -> str:
        """How a reported name supports the claim; empty when it does not (or nothing is claimed).

        `same`, `snapshot` (a dated form of the claim), `alias` (the claim is an alias of it),
        `vaguer` (it says less than the claim), `path` (a local server names a place on disk).
        """
        if self.hosting is not None and is_path(name):
            return "path"
        if same(self.claim, name):
            return "same"
        if snapshot_of(name, self.claim):
            return "snapshot"
        if snapshot_of(self.claim, name):
            return "vaguer"
        claimed = self.aliases.within(self.claim, pair.since, pair.until)
        if any(_is(row.target, name) for row in claimed):
            return "alias"
        stood_for = self.aliases.within(name, pair.since, pair.until)
        return "vaguer" if any(_is(row.target, self.claim) for row in stood_for) else ""

    def pair(self, asked: str, name: str, pair: Pair) -> str:
        """Verdict word of the responses that were asked for as `asked` and report `name`."""
        asked = asked or self.requested
        if asked and same(asked, name):
            return "CONSISTENT" if pinned(name) else "ECHO"
        if self.aliased(name, pair) or (self.claim and self.fits(name, pair) == "vaguer"):
            return "NAME-ONLY"
        if asked:
            return "RESOLVED"
        return "CONSISTENT" if pinned(name) else "NAME-ONLY"

    def aliased(self, name: str, pair: Pair) -> bool:
        """Whether `name` stood for something else, or for several things, at that time."""
        targets = {row.target for row in self.aliases.within(name, pair.since, pair.until)}
        return len(targets) > 1 or any(not _is(target, name) for target in targets)

    def overall(self, total: Tally) -> list[str]:
        """Verdict words that come from the logs as a whole."""
        words = []
        if not any(role.n for role in total.roles.values()):
            words.append("UNVERIFIABLE" if total.roles else "UNREADABLE")
        if total.bad_kinds:
            words.append("PARTIAL")
        if total.conflict_total or total.bad_kinds["duplicate key"] or self.too_early(total):
            words.append("SUSPECT")
        return words

    def too_early(self, total: Tally) -> list[tuple[str, Pair]]:
        """Responses that carry a name more than a day before it existed."""
        found = []
        for role in total.roles.values():
            for (_, name), pair in role.pairs.items():
                birth = self.aliases.birth(name)
                if birth and pair.since is not None and pair.since < birth.since - 86400:
                    found.append((name, pair))
        return found

    def first_mismatch(self, total: Tally) -> dict[str, Any] | None:
        """The first response whose name does not fit the claim, or else is not the usual one."""
        wrong: list[tuple[Pair, str]] = []
        for role in total.roles.values():
            names = role.reported()
            usual = names.most_common(1)[0][0] if names else ""
            for (_, name), pair in role.pairs.items():
                if not self.fits(name, pair) if self.claim else name != usual:
                    wrong.append((pair, name))
        if not wrong:
            return None
        pair, name = min(wrong, key=lambda item: item[0].order)
        return {"file": pair.file, "line": pair.line, "reported": shown(name)}


def _is(target: str, name: str) -> bool:
    return same(target, name) or snapshot_of(target, name)
