"""Everything one adapter does, put on the sketch of the result; each of its tensors is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from hubtools.checkpoint.adapter import Adapter
from hubtools.checkpoint.merging.dense import (
    add_bias,
    add_embedding,
    add_linear,
    require_float,
    set_tokens,
)
from hubtools.checkpoint.merging.drafts import Draft, Sketch, kind_of
from hubtools.checkpoint.merging.experts import Pair, placed_by_names, through_names
from hubtools.checkpoint.merging.heads import adopt_head, relabel_head
from hubtools.checkpoint.merging.places import Places
from hubtools.checkpoint.merging.recipe import Stored
from hubtools.checkpoint.merging.refusals import (
    OTHER_BASE,
    incomplete,
    refuse,
    trained_on,
)
from hubtools.checkpoint.merging.tensors import FLOATS, AdapterTensors
from hubtools.checkpoint.merging.tied import Sharing, same_bytes
from hubtools.checkpoint.merging.vocabulary import is_vocabulary
from hubtools.checkpoint.merging.ways import needs_peft
from hubtools.checkpoint.naming.names import NameMap

V = TypeVar("V")


def apply_adapter(
    sketch: Sketch, adapter: Adapter, tensors: AdapterTensors, names: NameMap | None
) -> list[str]:
    """Put what `adapter` trained on `sketch`.

    Args:
        sketch: of the result so far; changed in place.
        adapter: the adapter.
        tensors: those of the adapter.
        names: the base's name map; None when each name is that of a stored tensor.

    Returns:
        names of base tensors it asks for that are not there.

    Raises:
        CheckError: HT113 another shape, HT114 ranks, HT115 not floating point, HT116 alpha is 0,
            HT140 rows of a resized vocabulary, HT142 token rows, HT143 stored in pieces, HT150
            what only PEFT can merge.
    """
    application = _Application(sketch, adapter, tensors, names)
    application.run()
    return application.homeless


class _Application:
    def __init__(
        self, sketch: Sketch, adapter: Adapter, tensors: AdapterTensors, names: NameMap | None
    ) -> None:
        self._sketch, self._adapter, self._tensors = sketch, adapter, tensors
        self._names = names
        self._places = Places(sketch.drafts, names)
        linear = [module for module, parts in tensors.modules.items() if "A" in parts]
        self._by_names = frozenset(
            module
            for module in through_names(linear, adapter.config, sketch.drafts.keys())
            # A tied output matrix is not stored, and still is a matrix like any other.
            if self._places.parameter(f"{module}.weight") not in sketch.tied
        )
        self.homeless: list[str] = []

    def run(self) -> None:
        """Values first, then what is added to them."""
        self._refuse_layers()
        sharing = self._sharing()
        self._lay_beneath()
        for name, stored in self._tensors.whole.items():
            self._set_whole(name, stored, sharing)
        for module, parts in self._tensors.modules.items():
            weight = f"{module}.weight"
            if "tokens" in parts:
                for draft in self._drafts(weight, sharing.of_tokens):
                    set_tokens(draft, module, parts["tokens"], self._adapter)
            if "embedding_A" in parts:
                for draft in self._drafts(weight, sharing.of_low_rank):
                    add_embedding(draft, module, parts, self._adapter)
            if "A" in parts and module not in self._by_names:
                for draft in self._drafts(weight, sharing.of_low_rank):
                    add_linear(draft, module, parts, self._adapter, self._places)
            if "bias" in parts:
                self._add_bias(module, parts["bias"])
        self._add_by_names()

    def _drafts(self, name: str, shared: Callable[[str], list[str]]) -> list[Draft]:
        stored = self._places.find(name, self._adapter)
        if stored is None:
            self.homeless.append(name)
            return []
        return [self._sketch.drafts[member] for member in shared(stored)]

    def _sharing(self) -> Sharing:
        def stored(by_name: Mapping[str, V]) -> dict[str, V]:
            found: dict[str, V] = {}
            for name, value in by_name.items():
                place = self._places.find(name, self._adapter)
                if place in found:
                    what = f"{name} and another tensor are two names of one place, {place}"
                    raise incomplete(self._adapter.weights, what)
                if place is not None:
                    found[place] = value
            return found

        modules = self._tensors.modules.items()
        low_rank = {
            f"{module}.weight": module
            for module, parts in modules
            if {"A", "embedding_A"} & parts.keys() and module not in self._by_names
        }
        tokens = {f"{module}.weight": module for module, parts in modules if "tokens" in parts}
        return Sharing(
            self._sketch,
            self._adapter,
            whole=stored(self._tensors.whole),
            low_rank=stored(low_rank),
            tokens=stored(tokens),
        )

    def _add_bias(self, module: str, bias: Stored) -> None:
        name = f"{module}.bias"
        stored = self._places.find(name, self._adapter)
        if stored is None:
            raise refuse(
                "HT143",
                f"{module} was trained with lora_bias, but this base has no {name}",
                self._adapter.config.path,
                'publish it unmerged: kind = "adapter" in family.toml',
                "PEFT cannot merge it either.",
            )
        add_bias(self._sketch.drafts[stored], module, bias, self._adapter)

    def _lay_beneath(self) -> None:
        # A base matrix saved under a trained part was the one tensor of a tied pair.
        for name, stored in self._tensors.beneath.items():
            target = self._places.find(name, self._adapter)
            if target is None:
                continue  # the untrained twin of a head that the base does not have
            for member in self._sketch.group(target):
                draft = self._sketch.drafts[member]
                self._require_alike(draft, stored)
                if not same_bytes(draft.source, stored):
                    draft.start_from(stored, kind_of(name))

    def _set_whole(self, name: str, stored: Stored, sharing: Sharing) -> None:
        if self._places.find(name, self._adapter) is None and adopt_head(
            self._sketch, self._adapter, name, stored
        ):
            return
        for draft in self._drafts(name, sharing.of_whole):
            if relabel_head(self._sketch, self._adapter, draft, stored):
                continue
            self._require_alike(draft, stored)
            draft.start_from(stored, kind_of(name))
            draft.ops.clear()

    def _require_alike(self, draft: Draft, stored: Stored) -> None:
        shape = stored.entry.shape
        # The output matrix of a resized vocabulary may have a bias of its own.
        rows = len(shape) == len(draft.shape) and shape[1:] == draft.shape[1:]
        if shape != draft.shape and not (rows and is_vocabulary(self._sketch, draft.name)):
            raise refuse(
                "HT113",
                f"wrong base: {draft.name} is {list(draft.shape)}, the adapter holds it as"
                f" {list(shape)}",
                draft.source.path,
                OTHER_BASE,
                trained_on(self._adapter.config),
            )
        found = stored.entry.dtype
        if found != draft.dtype and not {found, draft.dtype} <= set(FLOATS):
            what = f"{stored.entry.name} is stored as {found}, the base's as {draft.dtype}"
            raise incomplete(self._adapter.weights, what)

    def _refuse_layers(self) -> None:
        for module, parts in self._tensors.modules.items():
            if "magnitude" in parts and "embedding_A" in parts:
                raise needs_peft(
                    self._adapter, self._sketch.base, f"DoRA on an embedding ({module})"
                )
            if any(len(stored.entry.shape) > 2 for stored in parts.values()):
                raise needs_peft(
                    self._adapter, self._sketch.base, f"LoRA on a convolution ({module})"
                )

    def _add_by_names(self) -> None:
        if not self._by_names:
            return
        modules = self._tensors.modules
        if self._names is None:
            self.homeless += [f"{module}.weight" for module in sorted(self._by_names)]
            return
        pairs = [
            Pair(module, parts["A"], parts["B"])
            for module, parts in modules.items()
            if module in self._by_names
        ]
        disk = {name: draft.source for name, draft in self._sketch.drafts.items()}
        placement = placed_by_names(pairs, self._adapter.config, disk, self._names)
        for name, ops in placement.ops.items():
            draft = self._sketch.drafts[name]
            require_float(draft)
            direct = name.removesuffix(".weight")
            if "A" in modules.get(direct, {}) and direct not in self._by_names:
                what = f"{direct} and {placement.origin[name][0]} are two names of one place"
                raise incomplete(self._adapter.weights, what)
            for module, op in zip(placement.origin[name], ops, strict=True):
                magnitude = modules[module].get("magnitude")
                if magnitude is not None and magnitude.entry.elements != op.b.shape[0]:
                    what = f"DoRA on {module}, which is stored in several tensors"
                    raise needs_peft(self._adapter, self._sketch.base, what)
                draft.ops.append(op if magnitude is None else replace(op, magnitude=magnitude))
            draft.kind = draft.kind or placement.kinds[name]
        for sentence in placement.notes:
            self._sketch.note(sentence)
        self.homeless += [f"{module}.weight" for module in placement.homeless]


def asked_names(tensors: AdapterTensors) -> list[str]:
    """Every parameter an adapter asks the base for."""
    names = dict.fromkeys([*tensors.whole, *tensors.beneath])
    for module, parts in tensors.modules.items():
        names[f"{module}.weight"] = None
        if "bias" in parts:
            names[f"{module}.bias"] = None
    return list(names)
