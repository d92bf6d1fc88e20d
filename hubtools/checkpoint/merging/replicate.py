"""layer_replication: a model with some of its layers several times, each with its own delta."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hubtools.checkpoint.adapter import Adapter
from hubtools.checkpoint.merging.drafts import Draft, Sketch
from hubtools.checkpoint.merging.refusals import refuse

# PEFT replicates the list it finds at model.layers, model by model.
_LAYER = re.compile(r"(?P<list>model\.layers)\.(?P<index>\d+)\.(?P<rest>.+)")
_MOST = 10_000
_PER_LAYER = ("layer_types", "mlp_layer_types", "no_rope_layers")


def replicate_layers(sketch: Sketch, adapter: Adapter) -> None:
    """Give the sketch the layers that `adapter` was trained on, each a copy of a base layer.

    Raises:
        CheckError: HT141 a map that this base cannot follow.
    """
    stated = adapter.config.fields.get("layer_replication")
    if not stated:
        return
    layers: dict[int, list[tuple[str, Draft]]] = {}
    for name, draft in sketch.drafts.items():
        if match := _LAYER.fullmatch(name):
            layers.setdefault(int(match["index"]), []).append((match["rest"], draft))
    count = sketch.config.get("num_hidden_layers")
    order = _order(stated, len(layers))
    if not order or layers.keys() != set(range(len(layers))) or count != len(layers):
        raise refuse(
            "HT141",
            f"layer_replication {str(stated)[:80]} cannot be followed: the base has"
            f" {len(layers)} layers at model.layers",
            adapter.config.path,
            "name the base the adapter was trained on: --base DIR",
        )
    _rebuild(sketch, layers, order)
    _edit(sketch, order, count)
    sketch.note(f"layers are replicated: {count} become {len(order)}, each with its own weights")


def _order(stated: Any, count: int) -> list[int]:
    """Base layer of each new layer; empty when the map is not one of `count` layers."""
    if not isinstance(stated, list):
        return []
    order: list[int] = []
    for span in stated:
        if not isinstance(span, list) or len(span) != 2 or not all(type(i) is int for i in span):
            return []
        if not 0 <= span[0] <= span[1] <= count:
            return []
        order += range(*span)
        if len(order) > _MOST:
            return []
    return order


def _rebuild(
    sketch: Sketch, layers: Mapping[int, list[tuple[str, Draft]]], order: list[int]
) -> None:
    copies = [
        Draft(f"model.layers.{new}.{rest}", old.file, old.source, old.source, old.dtype)
        for new, index in enumerate(order)
        for rest, old in layers[index]
    ]
    drafts: dict[str, Draft] = {}
    for name, draft in sketch.drafts.items():
        if _LAYER.fullmatch(name) is None:
            drafts[name] = draft
        elif copies:
            drafts |= {copy.name: copy for copy in copies}
            copies = []
    sketch.drafts.clear()
    sketch.drafts.update(drafts)


def _edit(sketch: Sketch, order: list[int], count: Any) -> None:
    sketch.edits["num_hidden_layers"] = len(order)
    for key in _PER_LAYER:
        values = sketch.config.get(key)
        if isinstance(values, list) and len(values) == count:
            sketch.edits[key] = [values[index] for index in order]
