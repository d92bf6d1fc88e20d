"""Evidence: what the stages found about a family, gathered for its cards.

It is a value with a JSON form, so that a card can be rendered again (and checked) on a machine that
has neither the weights nor the logs: manifest and prose come from the folder, the rest from here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from hubtools.facts import Fact, FactSet, fact_from_json
from hubtools.release.context import BASE, Release

if TYPE_CHECKING:
    from hubtools.family.manifest import Member

SCHEMA = "hubtools.evidence/1"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything measured that one member's card may show.

    Args:
        weights: member → weights digest, of every member whose weights are known.
        steps: member → optimizer steps as its trainer state says.
        facts: about this member, the others, the base and the family.
        suites, comparisons: as JSON objects; `hubtools.release.cards` makes card rows of them.
        verdict: `{verdict, paragraph, label}` of the teacher logs; empty without logs.
        files: path → {size, sha256} of what is published beside the card.
        dtype: of the published weights.
        chat: whether a chat template is published.
        base_files: what the base's files were held against, as in `Release`.
        released: repos of the family that exist, or are made by this release.
    """

    weights: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    suites: tuple[Mapping[str, Any], ...] = ()
    comparisons: tuple[Mapping[str, Any], ...] = ()
    verdict: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dtype: str = ""
    chat: bool = False
    released: tuple[str, ...] = ()
    base_files: Literal["", "hub", "cache", "local"] = ""

    def to_json(self) -> dict[str, Any]:
        """JSON object; `evidence_from_json` is the inverse."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain["facts"] = [fact.to_json() for fact in self.facts]
        return {"schema": SCHEMA, **plain}


def evidence_from_json(data: Mapping[str, Any]) -> Evidence:
    """Inverse of `Evidence.to_json`.

    Raises:
        ValueError: another schema, or facts that break their own rules.
    """
    if data.get("schema") != SCHEMA:
        raise ValueError(f"not {SCHEMA}: {data.get('schema')!r}")
    fields = {name: value for name, value in data.items() if name != "schema"}
    fields["facts"] = tuple(fact_from_json(fact) for fact in data["facts"])
    for name in ("suites", "comparisons", "released"):
        fields[name] = tuple(data[name])
    return Evidence(**fields)


def gather(release: Release, member: Member) -> Evidence:
    """What the finished stages say, for one member's card."""
    merged = release.done.get(("merge", member.id), {})
    verdict = release.done.get(("verify", member.id), {})
    facts: list[Fact] = [fact_from_json(fact) for fact in verdict.get("facts", ())]
    weights: dict[str, str] = {}
    steps: dict[str, int] = {}
    for other in (*release.family.members, release.base_member):
        if other.id != member.id and ("merge", other.id) not in release.done:
            published = _published(release, other)
            facts += published.facts
            weights |= published.weights
        for stage in ("merge", "evaluate"):
            outputs = release.done.get((stage, other.id))
            if outputs is None:
                continue
            weights[other.id] = outputs["weights"]
            for fact in outputs["facts"]:
                if fact["id"] == "train.optimizer_steps":
                    steps[other.id] = fact["value"]
            if stage == "merge" and other.id != member.id:
                continue
            facts += _named(other, member, (fact_from_json(f) for f in outputs["facts"]))
    weights.pop(BASE, None)
    suites, comparisons = _tables(release, member)
    return Evidence(
        weights=weights,
        steps=steps,
        facts=FactSet(tuple(facts)).facts,
        suites=tuple(suites),
        comparisons=tuple(comparisons),
        verdict={k: verdict[k] for k in ("verdict", "paragraph", "label") if k in verdict},
        files={
            name: {"size": entry["size"], "sha256": entry["sha256"]}
            for name, entry in merged.get("files", {}).items()
        },
        dtype=merged.get("dtype", ""),
        chat=bool(merged.get("talk", {}).get("chat_template", False)),
        released=_released(release),
        base_files=release.base_files,
    )


def _published(release: Release, other: Member) -> Evidence:
    """What an absent sister's own release record on the Hub says of her: her part of a family may
    have been released from another machine.
    """
    remote = release.remotes.get(other.repo)
    record = remote.release if remote is not None else None
    try:
        evidence = evidence_from_json(record["evidence"]) if record else Evidence()
        own = [
            replace(fact, source=replace(fact.source, path=f"hub:{other.repo}/{fact.source.path}"))
            for fact in evidence.facts
            if fact.id.startswith("eval.") and fact.subject.member == other.id
        ]
        digest = evidence.weights.get(other.id)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        release.note(f"! {other.repo}: its release record cannot be read ({error})")
        return Evidence()
    return Evidence(weights={other.id: digest} if digest else {}, facts=tuple(own))


def _released(release: Release) -> tuple[str, ...]:
    there = {repo for repo, remote in release.remotes.items() if remote.exists}
    if release.session is None:  # no Hub is asked: what the receipts remember
        there |= set(_receipts(release))
    made = {target.repo for target in release.targets if target.id not in release.failed}
    return tuple(sorted(there | made))


def _receipts(release: Release) -> Iterator[str]:
    """Repos of the family that were released from this folder to the Hub in question.

    A damaged receipt names none; nor does one of another Hub, such as a rehearsal's.
    """
    family = {member.repo for member in release.family.members}
    for file in sorted((release.state / "releases").glob("*.json")):
        try:
            receipt = json.loads(file.read_bytes())
            if receipt["hub"] == release.hub:
                entries = receipt["members"].values()
                yield from (entry["repo"] for entry in entries if entry["repo"] in family)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue


def _named(owner: Member, card: Member, facts: Any) -> list[Fact]:
    """A sister's evidence is in the sister's repo; the base's is published with every card."""
    if owner.id in (card.id, BASE):
        return list(facts)
    return [
        replace(fact, source=replace(fact.source, path=f"hub:{owner.repo}/{fact.source.path}"))
        for fact in facts
    ]


def _tables(
    release: Release, member: Member
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """The suites that were run, and this member against the base and each sister."""
    from hubtools.evaluation.compare import compared
    from hubtools.evaluation.records import Run, read_run

    def runs(target: str) -> dict[str, list[Run]]:
        """Protocol → the repeats under it."""
        found: dict[str, list[Run]] = {}
        for entry in release.done.get(("evaluate", target), {"runs": ()})["runs"]:
            run = read_run(release.state / entry["path"])
            found.setdefault(run.protocol_id, []).append(run)
        return found

    own = runs(member.id)
    suites = {protocol: suite_json(repeats[0]) for protocol, repeats in own.items()}
    others: dict[str, list[list[Run]]] = {}
    for target in (BASE, *(m.id for m in release.family.members if m.id != member.id)):
        for protocol, repeats in runs(target).items():
            suites.setdefault(protocol, suite_json(repeats[0]))
            others.setdefault(protocol, []).append(repeats)
    comparisons: list[Mapping[str, Any]] = []
    for protocol, mine in own.items():
        comparisons += [asdict(row) for row in compared(mine, others.get(protocol, []))]
    return list(suites.values()), comparisons


def suite_json(run: Any) -> Mapping[str, Any]:
    """The suite of a run as a card describes it."""
    return {
        "id": run.suite,
        "title": run.title,
        "description": run.description + _drawn(run),
        "protocol": run.protocol,
        "protocol_id": run.protocol_id,
        "metrics": [*(["macro"] if run.macro else []), *run.grids],
    }


def _drawn(run: Any) -> str:
    """What is said where only some of a suite's questions were asked."""
    suite = run.protocol["suite"]
    sample = suite.get("sample") or suite.get("drawn")
    if not sample:
        return ""
    seed = sample.get("seed", sample.get("sample_seed"))
    return (
        f" Here {run.items} of its questions were asked: at most {sample['limit']} of each"
        f" category, drawn with seed {seed}."
    )


def reported_facts(release_facts: Sequence[Fact], reported: FactSet) -> FactSet:
    """Measured and reported facts together: both are kept, each with its status."""
    measured = {(f.id, f.subject.member, f.protocol) for f in release_facts}
    extra = [f for f in reported if (f.id, f.subject.member, f.protocol) not in measured]
    return FactSet((*release_facts, *extra))
