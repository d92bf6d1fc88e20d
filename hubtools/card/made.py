"""How the weights were made: what was taken in from a trainer's shards, what a merge did. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hubtools.card.model import CardInput
from hubtools.card.rules import is_own
from hubtools.card.tables import Table
from hubtools.card.text import Markdown, code, escape, named_files
from hubtools.facts import Fact

_SOURCES = {
    "verl-fsdp": "FSDP shards, as verl saves them",
    "dcp": "shards of torch.distributed.checkpoint",
    "lora": "the adapter that verl saved",
    "pickle": "weights that PyTorch pickled",
    "safetensors": "safetensors",
}
_LEGEND = Markdown(
    "‖Δ‖/‖W‖: the size (Frobenius norm) of the exact change against that of the base's weights."
    " Unmoved: the share of elements that rounding left as they were in the base."
)


def made_tables(card: CardInput) -> tuple[Table, ...]:
    """A table for each step between the run's files and the published weights; often none."""
    own = {fact.id: fact for fact in card.facts if is_own(card, fact) and _is_made(fact)}
    tables = [*_ingest(own), *_merge(own)]
    if not tables:
        return ()
    source = Markdown(f"Source: {named_files(fact.source for fact in own.values())}.")
    return (*tables[:-1], replace(tables[-1], notes=(*tables[-1].notes, source)))


def _is_made(fact: Fact) -> bool:
    return fact.id.startswith(("merge.", "ingest."))


def _ingest(own: Mapping[str, Fact]) -> list[Table]:
    if "ingest.source" not in own:
        return []
    values = {id.removeprefix("ingest."): fact.value for id, fact in own.items()}
    ranks = values["world_size"]
    how = _SOURCES.get(values["source"], values["source"])
    saved, stored = (", ".join(values[name]) for name in ("dtypes_in", "dtypes_out"))
    rounded = f"{values['rounded_elements']} of {values['elements']} values changed by rounding"
    kept = f"{stored}, as saved" if saved == stored else f"{stored}; saved as {saved}, {rounded}"
    rows = (
        ("Taken in from", f"{how}, {ranks} ranks" if ranks > 1 else how),
        ("Stored as", kept),
    )
    return [Table(columns=("", ""), rows=rows)]


def _merge(own: Mapping[str, Fact]) -> list[Table]:
    if "merge.arithmetic" not in own:
        return []
    changed, total = own["merge.changed_tensors"].value, own["merge.tensors"].value
    intro = Markdown(
        f"Merged: {changed} of {total} tensors changed; {escape(own['merge.arithmetic'].value)}."
    )
    tensors = [id for id in own if id.startswith("merge.kinds.") and id.endswith(".tensors")]
    names = [id.removeprefix("merge.kinds.").removesuffix(".tensors") for id in tensors]
    rows = tuple((code(name), *_change(own, f"merge.kinds.{name}")) for name in names)
    notes = [escape(fact.value) for id, fact in own.items() if id.startswith("merge.note.")]
    columns = ("Weights", "Tensors", "‖Δ‖/‖W‖", "Unmoved")
    return [Table(columns=columns, rows=rows, intro=(intro,), notes=(_LEGEND, *notes))]


def _change(own: Mapping[str, Fact], place: str) -> tuple[str, str, str]:
    relative, unmoved = own.get(f"{place}.relative_change"), own[f"{place}.unmoved_share"].value
    shown = "no base weights" if relative is None else f"{relative.value:.3g}"
    return str(own[f"{place}.tensors"].value), shown, f"{100 * unmoved:.1f} %"
