"""A member's card: manifest + prose + evidence → the card room's input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hubtools.card.model import (
    Base,
    CardInput,
    ComparisonRow,
    FileRow,
    MemberRow,
    Provenance,
    Suite,
    Usage,
)
from hubtools.card.reported import read_reported
from hubtools.errors import UsageError
from hubtools.facts import FactSet
from hubtools.family.manifest import Family, Member
from hubtools.release.evidence import Evidence, reported_facts


def card_input(family: Family, member: Member, evidence: Evidence) -> CardInput:
    """Fill the card's model; nothing is formatted here.

    Args:
        family: manifest and prose.
        member: whose card it is.
        evidence: what was measured.

    Raises:
        UsageError: HT008 when prose or reported figures cannot be read.
    """
    table = family.manifest.family
    return CardInput(
        repo=member.repo,
        family=table.id,
        title=table.title,
        member=member.id,
        kind=table.kind,
        base=Base(table.base.repo, table.base.revision or "", table.base.license),
        license=table.license,
        license_name=table.license_name,
        license_link=table.license_link,
        languages=table.languages,
        tags=table.tags,
        pipeline_tag=table.pipeline_tag,
        datasets=table.datasets,
        base_files=evidence.base_files,
        weights=evidence.weights.get(member.id, ""),
        facts=_facts(family, evidence),
        members=tuple(
            MemberRow(
                member=other.id,
                label=other.label,
                repo=other.repo,
                step=other.step,
                optimizer_step=evidence.steps.get(
                    other.id, other.optimizer_step if other.declared else None
                ),
                released=other.repo in evidence.released,
                weights=evidence.weights.get(other.id, ""),
            )
            for other in family.members
        ),
        suites=tuple(
            Suite(**{**suite, "metrics": tuple(suite["metrics"])}) for suite in evidence.suites
        ),
        comparisons=tuple(_comparison(row) for row in evidence.comparisons),
        provenance=_provenance(family, evidence),
        usage=_usage(family, evidence),
        prose=read_prose(family, member),
        files=tuple(
            FileRow(path, entry["size"], entry["sha256"])
            for path, entry in sorted(evidence.files.items())
        ),
    )


def card_json(card: CardInput) -> dict[str, Any]:
    """The whole input as JSON: its digest is in the render stage's key."""
    plain = asdict(card)
    plain["facts"] = card.facts.to_json()
    return plain


def read_prose(family: Family, member: Member) -> dict[str, str]:
    """Sections written by hand: `prose/*.md`, then `prose/<arm>-<step>/*.md` over them.

    Raises:
        UsageError: HT008.
    """
    root = family.resolve(family.manifest.card.prose)
    sections: dict[str, str] = {}
    for folder in (root, root / f"{member.arm}-{member.step}"):
        for file in sorted(path for path in folder.glob("*.md") if path.is_file()):
            try:
                sections[file.stem] = file.read_text(encoding="utf-8").strip() + "\n"
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(
                    "HT008", f"cannot read prose: {error}", where=str(file), next="save it as UTF-8"
                ) from error
    return sections


def prose_files(family: Family) -> list[Path]:
    """Every file that `read_prose` may read."""
    folder = family.resolve(family.manifest.card.prose)
    return sorted(path for path in folder.glob("**/*.md") if path.is_file())


def _facts(family: Family, evidence: Evidence) -> FactSet:
    reported = family.manifest.card.reported
    if not reported:
        return FactSet(evidence.facts)
    return reported_facts(evidence.facts, read_reported(family.resolve(reported)))


def _comparison(row: Mapping[str, Any]) -> ComparisonRow:
    names = ComparisonRow.__dataclass_fields__
    renamed = {"a": row.get("a_member"), "b": row.get("b_member"), **row}
    return ComparisonRow(**{name: renamed[name] for name in names})


def _provenance(family: Family, evidence: Evidence) -> Provenance:
    table = family.manifest.provenance
    return Provenance(
        status=table.status,
        reason=table.reason,
        verdict=evidence.verdict.get("verdict"),
        paragraph=evidence.verdict.get("paragraph", ""),
        label=evidence.verdict.get("label", ""),
    )


def _usage(family: Family, evidence: Evidence) -> Usage:
    card = family.manifest.card
    return Usage(
        dtype=evidence.dtype,
        max_model_len=card.max_model_len,
        flags=card.vllm_flags,
        chat=evidence.chat,
    )
