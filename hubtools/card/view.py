"""Facts to view: everything a card says, decided and worded; the templates only place it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hubtools.card.front_matter import emit, metadata
from hubtools.card.model import BASE_MEMBER, CardInput, ComparisonRow, MemberRow
from hubtools.card.rules import in_family, is_commit, is_repo_id
from hubtools.card.tables import Evaluations, Table, evaluations, member_label, metric_title
from hubtools.card.teacher import TeacherView, fact_value, teacher
from hubtools.card.text import Markdown, cell, code, escape, hub_link, link, reported_in, sha8, size
from hubtools.card.usage import Snippet, snippets

KINDS = {
    "full": "full weights, fine-tuned from the base",
    "merged": "full weights: a LoRA adapter merged into the base",
    "adapter": "LoRA adapter; it needs the base",
}
_PLACED = {"summary", "training", "intended_use", "limitations", "notes", "citation"}


@dataclass(frozen=True)
class CardView:
    """What the templates see.

    `evaluated` says in words whether this very checkpoint was measured; `effects` compare it with
    the base, `sister_effects` with sisters. `prose` holds the author's Markdown by section.
    """

    front_matter: Markdown
    title: str
    prose: Mapping[str, Markdown]
    more_prose: Mapping[str, Markdown]
    identity: Table
    snippets: tuple[Snippet, ...]
    evaluated: str
    tables: Evaluations
    effects: tuple[str, ...]
    sisters: Table | None
    sister_effects: tuple[str, ...]
    teacher: TeacherView
    training: Table | None
    derived: tuple[str, ...]
    license: tuple[str, ...]
    files: Table | None


def build_view(card: CardInput) -> CardView:
    """Everything the card of one member says."""
    tables = evaluations(card)
    prose = {name: Markdown(text.strip()) for name, text in card.prose.items() if text.strip()}
    return CardView(
        front_matter=Markdown(emit(metadata(card))),
        title=card.title or card.repo.rpartition("/")[2],
        prose={name: prose[name] for name in _PLACED if name in prose},
        more_prose={name: text for name, text in prose.items() if name not in _PLACED},
        identity=_identity(card),
        snippets=tuple(snippets(card)),
        evaluated=_evaluated(tables),
        tables=tables,
        effects=tuple(_effects(card, sisters=False)),
        sisters=_sisters(card),
        sister_effects=tuple(_effects(card, sisters=True)),
        teacher=teacher(card),
        training=_training(card),
        derived=tuple(_derived(card)),
        license=tuple(_license(card)),
        files=_files(card),
    )


def _own_row(card: CardInput) -> MemberRow | None:
    return next((row for row in card.members if row.member == card.member), None)


def _identity(card: CardInput) -> Table:
    base = hub_link(card.base.repo, card.base.revision) if card.base.repo else "not stated"
    revision = code(card.base.revision) if card.base.revision else "not stated"
    if card.base.revision and not is_commit(card.base.revision):
        revision = Markdown(f"{revision} (a moving name, not a commit)")
    rows: list[tuple[str, str]] = [
        ("Kind", KINDS[card.kind]),
        ("Base model", base),
        ("Base revision", revision),
    ]
    own = _own_row(card)
    if own is not None:
        rows.append(("Family", Markdown(f"{escape(card.family)}, arm {_arm(own)}")))
        rows.append(("Step", _step(own)))
    known = Markdown(f"sha256 {code(card.weights)}") if card.weights else "not known to this card"
    rows.append(("Weights digest", known))
    off_hub = [name for name in card.datasets if not is_repo_id(name)]
    if off_hub:
        said = "; ".join(link(n, n) if n.startswith("https:") else code(n) for n in off_hub)
        rows.append(("Data not on the Hub", Markdown(said)))
    return Table(columns=("", ""), rows=tuple(rows))


def _arm(row: MemberRow) -> Markdown:
    arm = row.member.partition("/")[0]
    label = f" ({escape(row.label)})" if row.label and row.label != arm else ""
    return Markdown(f"{code(arm)}{label}")


def _step(row: MemberRow) -> Markdown:
    if row.optimizer_step is None:
        return Markdown(f"{code(row.step)}; the optimizer step is not stated")
    return Markdown(f"{code(row.step)}, optimizer step {row.optimizer_step}")


def _evaluated(tables: Evaluations) -> str:
    if tables.measured:
        return ""
    if tables.reported:
        return "No value of this checkpoint was measured for this card; its author reports some."
    others = bool(tables.others_measured or tables.others_reported)
    more = (
        " Values of other checkpoints are under “Sister checkpoints”; they say nothing about this"
        " one."
        if others
        else ""
    )
    return Markdown(
        f"**Not evaluated**: no value of this checkpoint was measured or reported.{more}"
    )


def _effects(card: CardInput, *, sisters: bool) -> list[str]:
    """This checkpoint minus another, each with its interval and what that interval means."""
    said: list[str] = []
    for row in card.comparisons:
        if card.member not in (row.a, row.b):
            continue
        other = row.b if row.a == card.member else row.a
        if (other == BASE_MEMBER) == sisters:
            continue
        said.append(_effect(card, row, other))
    mine = [
        r for r in card.comparisons if card.member in (r.a, r.b) and BASE_MEMBER not in (r.a, r.b)
    ]
    if sisters and mine and all(row.within_noise for row in mine):
        said.insert(0, "No sister differs from this checkpoint beyond noise.")
    return said


def _effect(card: CardInput, row: ComparisonRow, other: str) -> Markdown:
    sign = 1 if row.a == card.member else -1
    low, high = sorted((sign * row.low, sign * row.high))
    verdict = "no difference beyond noise" if row.within_noise else "a difference beyond noise"
    return Markdown(
        f"{escape(metric_title(row.metric))}, this checkpoint minus {member_label(card, other)}:"
        f" {sign * row.diff:+z.3f}, {100 * row.level:g} % interval {low:+z.3f} to {high:+z.3f}"
        f" ({escape(row.method)}, n = {row.n}, protocol {code(sha8(row.protocol_id))}):"
        f" **{verdict}**."
    )


def _sisters(card: CardInput) -> Table | None:
    if len(card.members) < 2:
        return None
    rows = []
    for row in card.members:
        name = row.repo.rpartition("/")[2]
        place: str = hub_link(row.repo) if row.released else code(name)
        if row.member == card.member:
            place = Markdown(f"**this checkpoint** ({code(name)})")
        state = "released" if row.released else "not released"
        rows.append((_arm(row), _step(row), place, state))
    return Table(columns=("Arm", "Step", "Checkpoint", "State"), rows=tuple(rows))


def _training(card: CardInput) -> Table | None:
    prefixes = ("train", "data", "adapter", "method")
    facts = [f for p in prefixes for f in card.facts.with_prefix(p) if in_family(card, f)]
    if not facts:
        return None
    how = {"measured": "read from the run's files"}
    rows = tuple((_setting(f.id), fact_value(f), how.get(f.status, f.status)) for f in facts)
    files = dict.fromkeys((f.source.path, f.source.sha256) for f in facts)
    named = ", ".join(f"{code(path)} (sha256 {code(sha8(sha))})" for path, sha in files)
    notes: list[str] = [Markdown(f"Source: {named}.")]
    notes += reported_in(f.source.quote for f in facts)
    return Table(columns=("Setting", "Value", "Status"), rows=rows, notes=tuple(notes))


def _setting(id: str) -> str:
    return id.split(".", 1)[-1].replace("_", " ").replace(".", ", ")


def _derived(card: CardInput) -> list[str]:
    """What the checkpoint has seen, computed from step, batch and data size."""
    own = _own_row(card)
    batch, rows = _number(card, "train.batch_size"), _number(card, "data.trajectories")
    if own is None or own.optimizer_step is None or not batch or not rows:
        return []
    seen = own.optimizer_step * batch
    return [
        f"Derived: {own.optimizer_step} steps × {batch} = {seen} of {rows} trajectories"
        f" ({seen / rows:.2f} epochs)."
    ]


def _number(card: CardInput, id: str) -> int:
    found = next((f for f in card.facts if f.id == id and in_family(card, f)), None)
    return found.value if found is not None and isinstance(found.value, int) else 0


def _license(card: CardInput) -> list[str]:
    own = code(card.license) if card.license else "not stated"
    named = f" ({escape(card.license_name)})" if card.license_name else ""
    where = f", {link('text', card.license_link)}" if card.license_link else ""
    lines: list[str] = [Markdown(f"This checkpoint: {own}{named}{where}.")]
    if not card.base.repo:
        return lines
    if not card.base.license:
        lines.append(Markdown(f"Base {hub_link(card.base.repo)}: its licence was not recorded."))
        return lines
    lines.append(
        Markdown(
            f"Base {hub_link(card.base.repo, card.base.revision)}: {code(card.base.license)},"
            " as its card states. Its conditions apply to this checkpoint too."
        )
    )
    return lines


def _files(card: CardInput) -> Table | None:
    rows = tuple(
        (code(row.path), size(row.size), code(row.sha256))
        for row in card.files
        if row.path != "README.md"
    )
    return Table(columns=("File", "Size", "sha256"), rows=rows) if rows else None


def table_lines(table: Table) -> Markdown:
    """The table in GitHub's Markdown; every cell is made safe here."""
    rule = tuple(Markdown("---") for _ in table.columns)
    lines = [table.columns, rule, *table.rows]
    return Markdown("\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines))
