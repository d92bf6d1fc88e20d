"""What a card is made of: plain values, filled by the release from manifest, store and facts.

Nothing here is formatted yet. `view.py` decides what is shown and how; the templates place it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hubtools.facts import FactSet

Kind = Literal["full", "merged", "adapter"]
ProvenanceStatus = Literal["logs", "reported", "none"]
BaseFiles = Literal["", "hub", "cache", "local"]

BASE_MEMBER = "base"
"""The member name under which facts about the base model are kept."""

FAMILY_MEMBER = "family"
"""The member name of facts about the whole family (training data, a protocol's description)."""


@dataclass(frozen=True)
class Base:
    """The model this one was trained from, at one commit.

    Args:
        repo: Hub id, `owner/name`.
        revision: 40 hex commit id; empty when it is not known (which the card then says).
        license: its licence id as the author declares it; empty when that is not known.
    """

    repo: str
    revision: str
    license: str = ""


@dataclass(frozen=True)
class MemberRow:
    """One checkpoint of the family, this card's own included.

    Args:
        member: its name in facts, for example `r2e/s50`.
        label: the arm in words, for example `code`.
        repo: Hub id.
        step: the step's name, for example `ep1`.
        optimizer_step: the number behind that name, when known.
        released: whether its repo exists (or is made by this very release).
        weights: weights digest; empty when unknown.
    """

    member: str
    label: str
    repo: str
    step: str
    optimizer_step: int | None
    released: bool
    weights: str = ""


@dataclass(frozen=True)
class Suite:
    """An evaluation suite and the protocol it was run under.

    Args:
        protocol: the fields that make two runs comparable; `protocol_id` is their digest.
        metrics: metric names in the order in which they are shown.
    """

    id: str
    title: str
    description: str
    protocol: Mapping[str, Any]
    protocol_id: str
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class ComparisonRow:
    """A paired comparison: `a` minus `b` on the same items under one protocol.

    Args:
        a, b: member names (or `base`).
        diff, low, high: the difference and its interval, in the metric's own unit.
        level: of the interval, for example 0.95.
        n: items compared.
        method: how the interval was made, for example `paired bootstrap`.
        within_noise: the interval holds zero.
    """

    suite: str
    metric: str
    a: str
    b: str
    diff: float
    low: float
    high: float
    level: float
    n: int
    method: str
    within_noise: bool
    protocol_id: str


@dataclass(frozen=True)
class Provenance:
    """What is known about the teacher.

    Args:
        reason: why the status is not `logs`.
        verdict: the verdict's JSON when the logs were read.
        paragraph: the verdict explained in words.
        label: the teacher's name as far as the evidence carries it; never an alias.
    """

    status: ProvenanceStatus
    reason: str = ""
    verdict: Mapping[str, Any] | None = None
    paragraph: str = ""
    label: str = ""


@dataclass(frozen=True)
class Usage:
    """How the checkpoint is meant to be loaded.

    Args:
        dtype: `bfloat16`, `float32`, …; empty lets transformers take the stored one.
        max_model_len: context length the evaluation served with.
        flags: further vLLM flags the evaluation used, one shell word each.
        chat: whether there is a chat template.
        tool_parser: vLLM tool call parser; empty when tools were not used.
    """

    dtype: str = ""
    max_model_len: int | None = None
    flags: tuple[str, ...] = ()
    chat: bool = True
    tool_parser: str = ""


@dataclass(frozen=True)
class FileRow:
    """One file of the repo: path, size in bytes, sha256."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class CardInput:
    """Everything one card says, about one member of one family.

    Args:
        title: the heading; empty takes the repo's name.
        weights: digest of this checkpoint's weights; what makes a fact its own.
        facts: about every member and `base`.
        members: the whole family, this member included.
        prose: section name → Markdown written by hand (`summary`, `training`, `intended_use`,
            `limitations`, `notes`, `citation`); absent sections are left out or said to be absent.
        base_files: `hub`, the base's weight files are those of the Hub at its commit, fetched or
            equal by digest; `cache`, they are a snapshot of that commit from a Hub on the
            author's own machine; `local`, a copy of the author's was used and not compared; empty,
            none were read.
    """

    repo: str
    family: str
    title: str
    member: str
    kind: Kind
    base: Base
    license: str
    license_name: str
    license_link: str
    languages: tuple[str, ...]
    tags: tuple[str, ...]
    pipeline_tag: str
    datasets: tuple[str, ...]
    weights: str
    facts: FactSet
    members: tuple[MemberRow, ...]
    suites: tuple[Suite, ...]
    comparisons: tuple[ComparisonRow, ...]
    provenance: Provenance
    usage: Usage
    prose: Mapping[str, str] = field(default_factory=dict)
    files: tuple[FileRow, ...] = ()
    base_files: BaseFiles = ""
