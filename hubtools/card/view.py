"""Facts to view: everything a card says, decided and worded; the templates only place it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hubtools.card.adapters import adapter_words, an_adapter
from hubtools.card.effects import SisterEffects, base_effects, sister_effects
from hubtools.card.front_matter import emit, metadata
from hubtools.card.made import made_tables
from hubtools.card.model import CardInput, MemberRow
from hubtools.card.prose import legend, shown_prose
from hubtools.card.rules import in_family, is_commit, is_repo_id
from hubtools.card.tables import Evaluations, Table, base_measured, evaluations
from hubtools.card.teacher import TeacherView, fact_value, teacher
from hubtools.card.text import (
    Markdown,
    cell,
    code,
    escape,
    hub_link,
    link,
    named_files,
    reported_in,
)
from hubtools.card.usage import Snippet, snippets
from hubtools.digests import canonical_json, weights_digest
from hubtools.facts import Fact
from hubtools.sizes import size_words

_BASE_FILES = {
    "": "declared by the author; its files were not read for this card",
    "local": "declared by the author; a local copy was used, not compared with the Hub",
    "cache": "declared by the author; the snapshot of this commit in the Hugging Face cache was"
    " used, with a Hub on the author's machine as its source: not compared with the public Hub",
    "hub": "weight files as on the Hub at this commit (fetched from there, or compared by digest)",
}
_ADAPTER_CONFIG = "adapter_config.json"
_CHECK = Markdown(
    "To check a download: `sha256sum FILE` gives the value in its row."
    " `.hubtools/release.json` lists these and all other files of the repo, this card among them."
)
_PLACED = {"summary", "training", "intended_use", "limitations", "notes", "citation"}


@dataclass(frozen=True)
class CardView:
    """What the templates see.

    `adapter` names the sort of adapter, with its article. `evaluated` says in words whether this
    very checkpoint was measured; `effects` compare it with the base, `sister_effects` with
    sisters. `prose` holds the author's Markdown by section, `legend` says what it is worth.
    """

    front_matter: Markdown
    title: str
    adapter: Markdown
    legend: Markdown
    prose: Mapping[str, Markdown]
    more_prose: Mapping[str, Markdown]
    identity: Table
    snippets: tuple[Snippet, ...]
    evaluated: str
    tables: Evaluations
    effects: tuple[str, ...]
    sisters: Table | None
    sister_effects: SisterEffects
    teacher: TeacherView
    training: Table | None
    made: tuple[Table, ...]
    derived: tuple[str, ...]
    license: tuple[str, ...]
    files: Table | None


def build_view(card: CardInput) -> CardView:
    """Everything the card of one member says."""
    tables = evaluations(card)
    prose = shown_prose(card.prose)
    return CardView(
        front_matter=Markdown(emit(metadata(card))),
        title=card.title or card.repo.rpartition("/")[2],
        adapter=an_adapter(card),
        legend=legend(prose),
        prose={name: prose[name] for name in _PLACED if name in prose},
        more_prose={name: text for name, text in prose.items() if name not in _PLACED},
        identity=_identity(card),
        snippets=tuple(snippets(card)),
        evaluated=_evaluated(tables),
        tables=tables,
        effects=base_effects(card),
        sisters=_sisters(card),
        sister_effects=sister_effects(card),
        teacher=teacher(card),
        training=_training(card),
        made=made_tables(card),
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
        ("Kind", _kind(card)),
        ("Base model", base),
        ("Base revision", revision),
    ]
    if card.base.repo:
        read = card.base_files or ("local" if base_measured(card) else "")
        rows.append(("Base identity", _BASE_FILES[read]))
    rows += _place(card)
    rows.append(("Weights digest", _digest(card)))
    off_hub = [name for name in card.datasets if not is_repo_id(name)]
    if off_hub:
        said = "; ".join(link(n, n) if n.startswith("https:") else code(n) for n in off_hub)
        rows.append(("Data not on the Hub", Markdown(said)))
    return Table(columns=("", ""), rows=tuple(rows))


def _kind(card: CardInput) -> Markdown:
    if card.kind == "full":
        return Markdown("full weights, fine-tuned from the base")
    if card.kind == "merged":
        return Markdown(f"full weights: {an_adapter(card)} merged into the base")
    return Markdown(f"{adapter_words(card)}; it needs the base")


def _place(card: CardInput) -> list[tuple[str, str]]:
    """Where in its family a checkpoint stands; of a family of one, how long it was trained."""
    own = _own_row(card)
    if own is None:
        return []
    if len(card.members) > 1:
        family = Markdown(f"{escape(card.family)}, arm {_arm(own)}")
        return [("Family", family), ("Step", _step(own))]
    return [] if own.optimizer_step is None else [("Optimizer step", str(own.optimizer_step))]


def _digest(card: CardInput) -> str:
    if not card.weights:
        return "not known to this card"
    where = "; Files says how to check it" if card.files else ""
    return Markdown(
        f"{code(card.weights)} (sha256 of the list of weight files with their digests, not of one"
        f" file{where})"
    )


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
    return Table(
        heading="Settings",
        columns=("Setting", "Value", "Status"),
        rows=rows,
        notes=(*_training_sources(card, facts), *reported_in(f.source.quote for f in facts)),
    )


def _training_sources(card: CardInput, facts: Sequence[Fact]) -> list[str]:
    """The trainer's own files apart from reports, and why a published copy of one may differ."""
    read = [f.source for f in facts if f.status == "measured"]
    told = [f.source for f in facts if f.status != "measured"]
    notes: list[str] = []
    if read:
        notes.append(Markdown(f"Source, files as the trainer wrote them: {named_files(read)}."))
    if told:
        notes.append(Markdown(f"Source: {named_files(told)}."))
    own = {s.sha256 for s in read if s.path.rpartition("/")[2] == _ADAPTER_CONFIG}
    published = {row.sha256 for row in card.files if row.path == _ADAPTER_CONFIG}
    if own and published and not own & published:
        name = code(_ADAPTER_CONFIG)
        notes.append(
            Markdown(
                f"The published {name} names the base by its Hub id where the trainer's named a"
                " local path; that is why its digest under Files is another one."
            )
        )
    return notes


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
        lines.append(Markdown(f"Base {hub_link(card.base.repo)}: its licence is not stated."))
        return lines
    lines.append(
        Markdown(
            f"Base {hub_link(card.base.repo, card.base.revision)}: {code(card.base.license)},"
            " as the author states. Its conditions apply to this checkpoint too."
        )
    )
    return lines


def _files(card: CardInput) -> Table | None:
    rows = tuple(
        (code(row.path), size_words(row.size), code(row.sha256))
        for row in card.files
        if row.path != "README.md"
    )
    notes = (_CHECK, *_digest_check(card))
    return Table(columns=("File", "Size", "sha256"), rows=rows, notes=notes) if rows else None


def _digest_check(card: CardInput) -> list[str]:
    """How the weights digest follows from the table; nothing where it does not."""
    weights = {row.path: row.sha256 for row in card.files if row.path.endswith(".safetensors")}
    if not card.weights or weights_digest(weights) != card.weights:
        return []
    if len(weights) == 1:
        text = canonical_json(weights).decode()
        command = code(f"printf '%s' {shlex.quote(text)} | sha256sum")
        return [Markdown(f"The weights digest of this card: {command}.")]
    text = '{"<file>":"<sha256>",…}'
    return [
        Markdown(
            "The weights digest of this card is the sha256 of the text"
            f" {code(text)} of all {code('*.safetensors')} rows, sorted by name, without spaces."
        )
    ]


def table_lines(table: Table) -> Markdown:
    """The table in GitHub's Markdown; every cell is made safe here."""
    rule = tuple(Markdown("---") for _ in table.columns)
    lines = [table.columns, rule, *table.rows]
    return Markdown("\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines))
