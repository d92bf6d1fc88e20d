"""Embeddings that are one tensor in the base: which parts of an adapter act on both, and what is
left of the tie.

By default the result behaves as the adapter's forward pass: PEFT trains the input and the output
embedding apart from each other although they begin as one tensor, so they become two.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from hubtools.checkpoint.adapter import Adapter
from hubtools.checkpoint.merging.config_edits import everywhere
from hubtools.checkpoint.merging.dense import token_rows
from hubtools.checkpoint.merging.drafts import Draft, Sketch, module_of
from hubtools.checkpoint.merging.recipe import Stored
from hubtools.checkpoint.naming.names import NameMap

_CHUNK = 1 << 20


def declare_ties(sketch: Sketch, names: NameMap) -> None:
    """Learn what is tied, and give each target that is not stored a draft of its own."""
    for target, source in names.tied.items():
        stored = _stored(names, source)
        if stored not in sketch.drafts:
            continue
        shared = sketch.drafts[stored]
        name = _stored(names, target)
        name = name if name in sketch.drafts else target
        if name not in sketch.drafts:
            draft = Draft(name, shared.file, shared.source, None, shared.dtype)
            sketch.drafts[name] = draft
        sketch.tied[name] = stored


def _stored(names: NameMap, parameter: str) -> str:
    parts = names.parameters.get(parameter, ())
    return parts[0].disk if len(parts) == 1 else parameter


class Sharing:
    """Which tensors each part of one adapter acts on.

    Args:
        whole, beneath: as in `AdapterTensors`, by stored name.
        tokens: stored names of embeddings with trained rows → their module in the adapter.
        low_rank: stored names that have factors → their module in the adapter.
    """

    def __init__(
        self,
        sketch: Sketch,
        adapter: Adapter,
        whole: Mapping[str, Stored],
        low_rank: Mapping[str, str],
        tokens: Mapping[str, str],
    ) -> None:
        self._sketch, self._adapter = sketch, adapter
        self._whole, self._low_rank, self._tokens = whole, low_rank, tokens
        self._ensured = bool(adapter.config.fields.get("ensure_weight_tying"))

    def of_low_rank(self, name: str) -> list[str]:
        """Factors act on their own matrix, unless training kept the two as one."""
        return self._ensured_group(name, self._low_rank.keys())

    def of_whole(self, name: str) -> list[str]:
        """Values trained through modules_to_save are one matrix's own.

        The rows of a resized vocabulary are saved for both, and are equal while it was tied.
        """
        group = self._sketch.group(name)
        if len(group) == 1 or self._ensured:
            return self._ensured_group(name, self._whole.keys())
        if any(_named(self._adapter, member) for member in group):
            return [name]
        twins = [member for member in group if member in self._whole]
        first = self._whole[twins[0]]
        if not all(same_bytes(first, self._whole[twin]) for twin in twins[1:]):
            return [name]
        return group if name == twins[0] else []

    def of_tokens(self, name: str) -> list[str]:
        """Rows trained in the input embedding act on the output embedding too, as in PEFT.

        Not when both have rows of their own.
        """
        group = self._sketch.group(name)
        rows = {token_rows(self._adapter, self._tokens[m]) for m in group if m in self._tokens}
        if group[0] not in self._tokens or (len(rows) > 1 and not self._ensured):
            return [name]
        return group if name == group[0] else []

    def _ensured_group(self, name: str, present: Set[str]) -> list[str]:
        # PEFT ties what it knows by name, and then saves the one set of values under both.
        group = self._sketch.group(name)
        if not self._ensured or not all(member in present for member in group):
            return [name]
        return group if name == group[0] else []


def settle_ties(sketch: Sketch, *, keep: bool) -> None:
    """Decide for each group of tied tensors whether it is still one, and say what follows.

    Args:
        sketch: with every adapter applied; changed in place.
        keep: as PEFT merges: low-rank parts of either matrix change the one tensor.
    """
    for source in dict.fromkeys(sketch.tied.values()):
        group = [sketch.drafts[name] for name in sketch.group(source)]
        if keep and all(_same_start(group[0], draft) for draft in group[1:]):
            _keep(group)
        if all(_same(group[0], draft) for draft in group[1:]):
            for draft in group[1:]:
                if draft.base is None:
                    del sketch.drafts[draft.name]
        else:
            _untie(sketch, group, keep=keep)


def _keep(group: list[Draft]) -> None:
    ops = [
        op for i, draft in enumerate(group) for op in draft.ops if i == 0 or op not in group[0].ops
    ]
    for draft in group:
        draft.ops = list(ops)
        draft.kind = draft.kind or next((other.kind for other in group if other.kind), "")


def _untie(sketch: Sketch, group: list[Draft], *, keep: bool) -> None:
    said = everywhere(sketch.config, "tie_word_embeddings")
    sketch.edits.update(dict.fromkeys({"tie_word_embeddings", *said}, False))
    names = " and ".join(draft.name for draft in group)
    may_stay = all(_same_start(group[0], draft) for draft in group[1:])
    choice = "; --keep-tied keeps one, as PEFT merges" if may_stay else ""
    if keep:
        choice = (
            "; --keep-tied changes nothing here: one was trained whole, and then PEFT writes both"
        )
    sketch.note(
        f"{names} were one tensor; trained apart they are two now (tie_word_embeddings is false),"
        f" as in the adapter's forward pass{choice}"
    )


def _same(a: Draft, b: Draft) -> bool:
    return _same_start(a, b) and a.ops == b.ops


def _same_start(a: Draft, b: Draft) -> bool:
    return a.source == b.source or not (a.replaced or b.replaced or b.base is None)


def _named(adapter: Adapter, name: str) -> bool:
    saved = adapter.config.fields.get("modules_to_save")
    module = module_of(name)
    keys = saved if isinstance(saved, list) else []
    return any(module == key or module.endswith(f".{key}") for key in keys)


def same_bytes(a: Stored, b: Stored) -> bool:
    """Whether two stored tensors are one: dtype, shape and every value."""
    if (a.entry.dtype, a.entry.shape) != (b.entry.dtype, b.entry.shape):
        return False
    with a.path.open("rb") as first, b.path.open("rb") as second:
        first.seek(a.entry.begin)
        second.seek(b.entry.begin)
        left = a.entry.end - a.entry.begin
        while left:
            size = min(left, _CHUNK)
            if first.read(size) != second.read(size):
                return False
            left -= size
    return True
