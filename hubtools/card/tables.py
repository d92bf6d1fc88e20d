"""Evaluation tables: one protocol a table, every row named, every table with its source. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hubtools.card.model import BASE_MEMBER, CardInput, Suite
from hubtools.card.rules import (
    differing,
    has_evidence,
    is_other,
    is_own,
    member_row,
    protocol_fields,
    suite_metric,
)
from hubtools.card.text import (
    Markdown,
    code,
    escape,
    hub_link,
    named_files,
    reported_in,
    sha8,
    shown_values,
    value_text,
)
from hubtools.facts import Fact

TITLES = {"em": "EM", "f1": "F1", "acc": "accuracy"}
_LONG = 90


@dataclass(frozen=True)
class Table:
    """A table as the templates place it.

    Args:
        heading: above it; may be empty.
        intro: sentences before the table.
        columns, rows: what it holds; a cell that is not `Markdown` is escaped.
        notes: after it: sources, kinds of interval, differences from other protocols.
        protocol: (field, value) of the protocol, shown folded.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    heading: str = ""
    intro: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    protocol: tuple[tuple[str, str], ...] = ()
    protocol_name: str = ""


def metric_title(metric: str) -> str:
    """How a metric is headed."""
    return TITLES.get(metric, metric.replace("_", " "))


def member_label(card: CardInput, member: str) -> Markdown:
    """The name of a row: this checkpoint, the base, a sister by repo, or an outsider in words."""
    if member == card.member:
        return Markdown(f"**this checkpoint** ({code(card.repo.rpartition('/')[2])})")
    if member == BASE_MEMBER:
        return Markdown(f"base ({code(card.base.repo)})")
    row = member_row(card, member)
    if row is not None:
        name = row.repo.rpartition("/")[2]
        return hub_link(row.repo) if row.released else code(name)
    described = card.facts.get("about", member)
    return escape(described.value if described else member)


@dataclass(frozen=True)
class Evaluations:
    """Every evaluation table of a card, apart: measured or reported, this checkpoint or others."""

    measured: tuple[Table, ...]
    reported: tuple[Table, ...]
    others_measured: tuple[Table, ...]
    others_reported: tuple[Table, ...]


def evaluations(card: CardInput) -> Evaluations:
    """Sort the evaluation facts into tables.

    The first protocol met is the reference: a table under another one lists how it differs. What
    stands in a table of this checkpoint is not said again among the others.
    """
    scored = [f for f in card.facts if suite_metric(f) is not None]
    measured = [f for f in scored if has_evidence(card, f) and _listed(card, f)]
    reported = [f for f in scored if f.status != "measured"]
    seen: list[str] = []
    groups = []
    above: list[set[str]] = []
    for facts in (measured, reported):
        others = {f.protocol for f in facts if is_other(card, f)}
        own = [f for f in facts if is_own(card, f)]
        alone = [f for f in facts if _is_base(f) and f.protocol not in others] if own else []
        groups.append(_tables(card, facts, own + alone, seen, set()))
        above.append({f.protocol for f in own + alone})
    for facts, shown in zip((measured, reported), above, strict=True):
        others_of = [f for f in facts if is_other(card, f)]
        alone = [f for f in facts if _is_base(f) and f.protocol not in seen]
        groups.append(_tables(card, facts, others_of + alone, seen, shown))
    return Evaluations(*groups)


def _is_base(fact: Fact) -> bool:
    return fact.subject.member == BASE_MEMBER


def _tables(
    card: CardInput, facts: list[Fact], wanted: list[Fact], seen: list[str], above: set[str]
) -> tuple[Table, ...]:
    tables: list[Table] = []
    for protocol in dict.fromkeys(f.protocol for f in _suite_order(card, wanted)):
        shown = [f for f in wanted if f.protocol == protocol]
        context = [
            f
            for f in facts
            if f.protocol == protocol and f not in shown and (_is_base(f) or is_own(card, f))
        ]
        known = shown if protocol in above else context + shown
        tables.append(_table(card, protocol, known, seen, continued=protocol in above))
        seen.append(protocol)
    return tuple(tables)


def _listed(card: CardInput, fact: Fact) -> bool:
    name = suite_metric(fact)
    suite = _suite(card, fact.protocol)
    return suite is None or (name is not None and name[1] in suite.metrics)


def _suite(card: CardInput, protocol: str) -> Suite | None:
    return next((s for s in card.suites if s.protocol_id == protocol), None)


def _suite_order(card: CardInput, facts: Sequence[Fact]) -> list[Fact]:
    order = {suite.protocol_id: place for place, suite in enumerate(card.suites)}
    return sorted(facts, key=lambda fact: order.get(fact.protocol, len(order)))


def _table(
    card: CardInput,
    protocol: str,
    facts: list[Fact],
    seen: list[str],
    *,
    continued: bool,
) -> Table:
    first, measured = protocol not in seen, facts[0].status == "measured"
    metrics = list(dict.fromkeys(_column(f) for f in _by_metric(card, protocol, facts)))
    order = [BASE_MEMBER, *(row.member for row in card.members)]
    base = () if continued else (BASE_MEMBER,)
    members = dict.fromkeys([*base, *(f.subject.member for f in facts)])
    rows = []
    for member in sorted(members, key=lambda m: order.index(m) if m in order else len(order)):
        own = {_column(f): f for f in facts if f.subject.member == member}
        absent = "—" if own else "not measured" if measured else "not reported"
        cells = [value_text(own[m]) if m in own else absent for m in metrics]
        rows.append((member_label(card, member), *map(escape, cells), escape(_n(own.values()))))
    described = protocol_fields(card, protocol) if first else {}
    fields = tuple((name, _short(value)) for name, value in described.items())
    return Table(
        heading=_heading(card, protocol, facts),
        intro=_intro(card, protocol, measured=measured, first=first, continued=continued),
        columns=("Checkpoint", *metrics, "n"),
        rows=tuple(rows),
        notes=(
            *([] if continued else _interval_notes(facts)),
            *_failure_notes(card, protocol, list(members)),
            *_cut_off_note(card, protocol, list(members)),
            *_base_note(card, facts),
            *_source_notes(card, facts),
            *_difference_notes(card, protocol, (*seen, protocol)[0]),
        ),
        protocol=fields,
        protocol_name=sha8(protocol),
    )


def _by_metric(card: CardInput, protocol: str, facts: list[Fact]) -> list[Fact]:
    suite = _suite(card, protocol)
    order = list(suite.metrics) if suite else []

    def place(fact: Fact) -> int:
        name = suite_metric(fact)
        return order.index(name[1]) if name and name[1] in order else len(order)

    return sorted(facts, key=place)


def _column(fact: Fact) -> str:
    _, metric, variant = suite_metric(fact) or ("", fact.id, "")
    return metric_title(metric) + (f", {variant.replace('_', ' ')}" if variant else "")


def _n(facts: Iterable[Fact]) -> str:
    counts = dict.fromkeys("not stated" if f.n is None else str(f.n) for f in facts)
    return " / ".join(counts) or "—"


def _heading(card: CardInput, protocol: str, facts: list[Fact]) -> str:
    suite = _suite(card, protocol)
    if suite is not None:
        return suite.title
    for fact in card.facts.with_prefix("protocol_title"):
        if fact.protocol == protocol:
            return str(fact.value)
    name = suite_metric(facts[0])
    return name[0].replace("_", " ") if name else ""


def _intro(
    card: CardInput, protocol: str, *, measured: bool, first: bool, continued: bool
) -> tuple[str, ...]:
    said: list[str] = []
    suite = _suite(card, protocol)
    if not measured:
        said.append("As its author reports it; nothing in this table was measured for this card.")
    elif first and suite is not None and suite.description:
        said.append(suite.description)
    if not first:
        rest = "; base and this checkpoint stand under Results" if continued else ""
        said.append(Markdown(f"Protocol {code(sha8(protocol))}, as above{rest}."))
    return tuple(said)


def _interval_notes(facts: Iterable[Fact]) -> list[str]:
    kinds: dict[str, list[str]] = {}
    for fact in facts:
        if fact.spread is not None:
            kinds.setdefault(fact.spread.method, []).append(_column(fact))
    if not kinds:
        return []
    said = "; ".join(f"{', '.join(dict.fromkeys(cols))}: {how}" for how, cols in kinds.items())
    return [f"How the intervals were made: {said}."]


def _failure_notes(card: CardInput, protocol: str, members: Sequence[str]) -> list[str]:
    """Items without an answer are said, because they are missing from n."""
    return [
        Markdown(f"{fact.value} of {fact.n} items failed on {label}.")
        for label, fact in _counted(card, protocol, members, "failures")
    ]


def _cut_off_note(card: CardInput, protocol: str, members: Sequence[str]) -> list[str]:
    """Answers that were not let to end are said, because their scores may be worth less."""
    counts = [
        f"{fact.value} of {fact.n} of {label}"
        for label, fact in _counted(card, protocol, members, "cut_off")
    ]
    limit = protocol_fields(card, protocol).get("sampling.max_new_tokens", "")
    tokens = f"{escape(limit)} tokens" if limit else "tokens"
    said = f"Answers that reached the limit of {tokens}: {'; '.join(counts)}."
    return [Markdown(said)] if counts else []


def _counted(
    card: CardInput, protocol: str, members: Sequence[str], name: str
) -> list[tuple[Markdown, Fact]]:
    """(label, fact) of every member for which `eval.<suite>.<name>` is not zero."""
    return [
        (member_label(card, member), fact)
        for member in members
        for fact in card.facts.of(member)
        if fact.protocol == protocol
        and fact.id.startswith("eval.")
        and fact.id.endswith(f".{name}")
        and (fact.status != "measured" or has_evidence(card, fact))
        and fact.value
    ]


def base_measured(card: CardInput) -> bool:
    """Whether some value of the base was measured for this card."""
    return any(
        _is_base(f) and f.status == "measured" and suite_metric(f) is not None for f in card.facts
    )


def _base_note(card: CardInput, facts: Sequence[Fact]) -> list[str]:
    """The base's row says what was measured, not that it is the base that the Hub holds."""
    weights = {f.subject.weights for f in facts if _is_base(f) and f.status == "measured"}
    if not weights or card.base_files == "hub":
        return []
    named = " and ".join(code(sha8(digest)) for digest in sorted(weights) if digest)
    of = f" (weights digest {named})" if named else ""
    return [
        Markdown(
            f"The base's row was measured on the author's copy{of}; that it equals"
            f" {code(card.base.repo)} on the Hub was not checked."
        )
    ]


def _source_notes(card: CardInput, facts: Sequence[Fact]) -> list[str]:
    notes: list[str] = [Markdown(f"Source: {named_files(f.source for f in facts)}.")]
    notes += reported_in(f.source.quote for f in facts)
    for fact in facts:
        if fact.status == "unverified":
            who = member_label(card, fact.subject.member)
            value = escape(" and ".join(shown_values(fact)))
            notes.append(Markdown(f"{value} ({who}): not verified which weights it belongs to."))
    return notes


def _difference_notes(card: CardInput, protocol: str, reference: str) -> list[str]:
    if protocol == reference:
        return []
    pairs = differing(protocol_fields(card, reference), protocol_fields(card, protocol))
    said = "; ".join(
        f"{escape(field)}: {escape(_short(there))} there, {escape(_short(here))} here"
        for field, there, here in pairs
    )
    against = f"Not comparable with the table of protocol {code(sha8(reference))}"
    return [Markdown(f"{against}: {said or 'its fields are not known'}.")]


def _short(value: str) -> str:
    line = " ".join(value.split())
    return line if len(line) <= _LONG else f"{line[:_LONG]}… ({len(value)} characters)"
