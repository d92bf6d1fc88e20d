"""verify: which model the teacher logs report, before any weight is touched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubtools.digests import sha256_json
from hubtools.family.manifest import Member
from hubtools.provenance.accept import require_acceptable
from hubtools.provenance.aliases import load_aliases
from hubtools.provenance.explain import paragraph, teacher_label
from hubtools.provenance.facts import verdict_facts
from hubtools.provenance.run import log_digests, read_hosting, rules_digest, verify_logs
from hubtools.release.context import Release
from hubtools.release.stages.base import Stage

PUBLISHED = ".hubtools/provenance.json"
"""Where the verdict stands in the repo: its canonical JSON, so that its digest is the facts'."""


class Verify(Stage):
    """Verdict with k/n per role, shared by every member that has the same logs."""

    name = "verify"

    def record_target(self, member: Member) -> str:
        """The teacher's, not a member's: the logs are the family's."""
        return "teacher"

    def skip(self, release: Release, member: Member) -> str:
        """Families whose manifest declares no logs say so on the card."""
        table = release.family.manifest.provenance
        return "" if table.status == "logs" else "no logs"

    def inputs(self, release: Release, member: Member) -> Mapping[str, Any]:
        """Log digests, the claim, and everything the verdict depends on."""
        teacher = release.family.manifest.provenance.teacher
        assert teacher is not None
        aliases = release.family.manifest.provenance.aliases
        files = [name for name in (teacher.served, aliases) if name]
        if teacher.served:  # a file that cannot be used is told now, as what it is
            read_hosting(release.family.resolve(teacher.served), teacher.weights)
        if aliases:
            load_aliases(release.family.resolve(aliases))
        return {
            "logs": log_digests(_patterns(teacher.logs), release.family.root, release.digests),
            "claim": teacher.claim,
            "requested": teacher.requested,
            "hosting": teacher.hosting,
            "weights": teacher.weights,
            "files": {f: release.digests.sha256(release.family.resolve(f)) for f in files},
            "rules": rules_digest(),
        }

    def summary(self, outputs: Mapping[str, Any]) -> str:
        """The verdict and its counts."""
        verdict = outputs["verdict"]
        counts = ", ".join(f"{name} {r['k']}/{r['n']}" for name, r in verdict["roles"].items())
        return f"{verdict['verdict']} ({counts})"

    def run(self, release: Release, member: Member, key: str) -> Mapping[str, Any]:
        """Read the logs; a contradicted claim ends the release."""
        manifest = release.family.manifest.provenance
        teacher = manifest.teacher
        assert teacher is not None
        verdict = verify_logs(
            _patterns(teacher.logs),
            release.family.root,
            claim=teacher.claim,
            requested=teacher.requested,
            hosting=teacher.hosting,
            weights=teacher.weights,
            served=release.family.resolve(teacher.served) if teacher.served else None,
            aliases=release.family.resolve(manifest.aliases) if manifest.aliases else None,
            cache=release.digests,
            progress=release.progress,
        ).to_json()
        require_acceptable(verdict, release.family.where("provenance", "teacher", "claim"))
        facts = verdict_facts(
            verdict,
            member="family",
            source_path=PUBLISHED,
            source_sha256=sha256_json(verdict),
        )
        return {
            "verdict": verdict,
            "paragraph": paragraph(verdict),
            "label": teacher_label(verdict),
            "facts": [fact.to_json() for fact in facts],
        }


def _patterns(logs: str | tuple[str, ...]) -> list[str]:
    return [logs] if isinstance(logs, str) else list(logs)
