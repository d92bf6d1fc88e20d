"""The plan of a merge: every adapter tensor has exactly one place, known before a byte is written.

Reads headers and small JSON files; only where a name is not that of a stored tensor, transformers
is asked (in a child process) what it means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hubtools.checkpoint.adapter import Adapter
from hubtools.checkpoint.adapter_kinds import ignored_options
from hubtools.checkpoint.inspect import inspect_checkpoint
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.merging.apply import apply_adapter, asked_names
from hubtools.checkpoint.merging.config_edits import effective, everywhere
from hubtools.checkpoint.merging.drafts import Sketch, sketch
from hubtools.checkpoint.merging.experts import questions
from hubtools.checkpoint.merging.heads import require_filled
from hubtools.checkpoint.merging.layout import lay_out
from hubtools.checkpoint.merging.needs import needs_names
from hubtools.checkpoint.merging.options import MergeOptions
from hubtools.checkpoint.merging.product import engine_of
from hubtools.checkpoint.merging.recipe import Layout
from hubtools.checkpoint.merging.refusals import homeless, refuse
from hubtools.checkpoint.merging.replicate import replicate_layers
from hubtools.checkpoint.merging.stated import lost_target, require_announced, require_stated
from hubtools.checkpoint.merging.summary import plan_summary
from hubtools.checkpoint.merging.tensors import FLOATS, AdapterTensors, read_tensors
from hubtools.checkpoint.merging.tied import declare_ties, settle_ties
from hubtools.checkpoint.merging.vocabulary import follow_rows
from hubtools.checkpoint.merging.ways import require_streamable
from hubtools.checkpoint.namedbase import in_use, other_base
from hubtools.checkpoint.naming.names import NameMap, name_map
from hubtools.checkpoint.shards import Weights, read_weights

_QUANTISED_NAME = re.compile(r"(bnb-[48]bit|-[48]bit|gptq|awq|int[48]|fp8|nf4)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What a merge will do.

    Args:
        adapters: in the order they are merged.
        weights: of the base.
        layout: every output tensor, with what is done to it.
        config_edits: dotted path in config.json → its new value.
        engine: who multiplies B·A.
        notes: what the user should know, in sentences.
        names: the base's name map when it was needed; `plan_merge` takes it back.
        adapter_tensors: number of tensors in all adapter files.
        merged_by: `peft` when PEFT computed the changed tensors and the engine only stores them.
    """

    adapters: tuple[Adapter, ...]
    base: Path
    options: MergeOptions
    weights: Weights
    layout: Layout
    config_edits: Mapping[str, Any]
    engine: Literal["numpy", "torch"]
    notes: tuple[str, ...]
    names: NameMap | None
    adapter_tensors: int
    merged_by: Literal["stream", "peft"] = "stream"

    def to_json(self) -> dict[str, Any]:
        """The `plan` object of `hubtools merge --dry-run --json`."""
        return {
            "adapter_tensors": self.adapter_tensors,
            **plan_summary(self.layout, self.weights),
            "engine": self.engine if self.merged_by == "stream" else self.merged_by,
            "options": self.options.to_json(),
            "config": dict(self.config_edits),
            "notes": list(self.notes),
        }


def plan_merge(
    adapters: Sequence[Adapter],
    base: Path,
    options: MergeOptions | None = None,
    names: NameMap | None = None,
    log: Path | None = None,
) -> MergePlan:
    """Match every tensor of the adapters to exactly one tensor of `base`.

    Args:
        adapters: merged in turn.
        base: directory of the model they were trained on.
        options: default: none chosen.
        names: the base's name map, when an earlier plan already asked for it.
        log: where the child process that asks transformers for names tells its story; None: a
            file that stays only if an error names it.

    Raises:
        CheckError: HT110/HT150 an adapter that is refused or needs PEFT, HT111 a tensor of another
            type, HT112 a tensor without a place, HT113 another shape (wrong base), HT114 half an
            adapter, HT115 a base that arithmetic cannot change, HT116 alpha is 0, HT140 a
            vocabulary that does not fit, HT141 layers that cannot be replicated, HT142 token rows,
            HT143 a tensor stored in pieces, HT145 layers nobody has; HT10x unreadable files; as
            `name_map`.
    """
    options = options or MergeOptions()
    draft = base_sketch(base)
    for adapter in adapters:
        require_streamable(adapter, base, base_is_residual=options.base_is_residual)
    require_sixteen_bits(draft, adapters)
    tensors = [read_tensors(adapter) for adapter in adapters]
    _replicate(draft, adapters)
    if names is None and any(map(needs_names, [draft] * len(tensors), adapters, tensors)):
        names = _ask(base, tensors, log)
    if names is not None:
        declare_ties(draft, names)
    for adapter, found in zip(adapters, tensors, strict=True):
        require_stated(adapter, found, draft, names)
        missing = apply_adapter(draft, adapter, found, names)
        if missing:
            total = len(found.modules) + len(found.whole)
            raise homeless(adapter.config, base, _kind(draft), missing, total)
        known = names
        if known is None and lost_target(adapter, found, draft, None):
            known = _ask(base, tensors, log)  # in memory it may have another name
        require_announced(adapter, found, draft, known)
    require_filled(draft, log)
    settle_ties(draft, keep=options.keep_tied)
    follow_rows(draft, adapters[0].weights)
    return planned(draft, adapters, options, sum(found.count for found in tensors), names)


def planned(
    draft: Sketch,
    adapters: Sequence[Adapter],
    options: MergeOptions,
    adapter_tensors: int,
    names: NameMap | None = None,
    *,
    merged_by: Literal["stream", "peft"] = "stream",
) -> MergePlan:
    """The plan that a finished sketch is; its tensors get the dtype that was asked for.

    Raises:
        CheckError: HT115 a change of float64 tensors.
    """
    _change_dtype(draft, options)
    _require_narrow(draft)
    layout = lay_out(draft)
    return MergePlan(
        adapters=tuple(adapters),
        base=draft.base,
        options=options,
        weights=draft.weights,
        layout=layout,
        config_edits=effective(draft.config, draft.edits),
        engine=engine_of(layout),
        notes=tuple(draft.notes),
        names=names,
        adapter_tensors=adapter_tensors,
        merged_by=merged_by,
    )


def base_sketch(base: Path) -> Sketch:
    """The base as it is, once it is known to be a model.

    Raises:
        CheckError: HT115 an adapter; HT10x unreadable files.
    """
    if inspect_checkpoint(base).kind == "adapter":
        why = "the base is itself an adapter"
        raise refuse("HT115", why, base, "name the model that adapter was trained on: --base DIR")
    return sketch(base, read_object(base / "config.json"), read_weights(base))


def require_sixteen_bits(draft: Sketch, adapters: Sequence[Adapter]) -> None:
    """Stop where a choice is the user's, and note the one that was made."""
    if any(everywhere(draft.config, "quantization_config").values()):
        raise refuse(
            "HT115",
            "the base is quantised: what to merge into is for you to choose",
            draft.base / "config.json",
            "name the 16-bit model it was quantised from: --base DIR",
            "Merged into the 16-bit weights, the result is off by what quantisation had changed:"
            " training never saw those weights.",
            'Or publish the adapter unmerged, for use over the quantised base: kind = "adapter".',
        )
    for adapter in adapters:
        other = other_base(adapter.config, **in_use(draft.base))
        if other:
            draft.note(
                f"adapter_config.json names another base, {other}; it is merged into {draft.base}"
            )
        if ignored := ignored_options(adapter.config):
            draft.note(
                f"PEFT does not know, and leaves out, {', '.join(ignored)} of adapter_config.json;"
                " so does this merge"
            )
        if _QUANTISED_NAME.search(adapter.config.base):
            draft.note(
                f"the adapter names a quantised base ({adapter.config.base}); it is merged into"
                " the full weights of the base, which training did not see"
            )


def _replicate(draft: Sketch, adapters: Sequence[Adapter]) -> None:
    asking = [a for a in adapters if a.config.fields.get("layer_replication")]
    if asking and len(adapters) > 1:
        raise refuse(
            "HT141",
            "an adapter with layer_replication cannot be merged together with others",
            asking[0].config.path,
            "merge it alone, then merge the next one into the result",
        )
    for adapter in asking:
        replicate_layers(draft, adapter)


def _ask(base: Path, tensors: Sequence[AdapterTensors], log: Path | None) -> NameMap:
    asked = {name for found in tensors for name in asked_names(found)}
    asked |= set(questions(module for found in tensors for module in found.modules))
    return name_map(base, sorted(asked), log)


def _kind(draft: Sketch) -> str:
    named = draft.config.get("architectures")
    return (
        str(named[0]) if isinstance(named, list) and named else str(draft.config.get("model_type"))
    )


def _require_narrow(draft: Sketch) -> None:
    """Changes are computed in float32, which would cut off more than half of a float64."""
    for tensor in draft.drafts.values():
        if tensor.ops and tensor.dtype == "F64":
            why = f"{tensor.name} is stored as F64, and the merge computes in float32"
            fix = "run the same command with --engine peft; or with --dtype float32"
            more = "PEFT computes in float64, with the whole model in memory."
            raise refuse("HT115", why, tensor.source.path, fix, more)


def _change_dtype(draft: Sketch, options: MergeOptions) -> None:
    """Store every floating-point tensor in the dtype that was asked for."""
    if options.stored_dtype is None:
        return
    for tensor in draft.drafts.values():
        if tensor.dtype in FLOATS:
            tensor.dtype = options.stored_dtype
    said = {
        **everywhere(draft.config, "dtype"),
        **everywhere(draft.config, "torch_dtype"),
    } or {"torch_dtype": None}
    draft.edits.update(dict.fromkeys(said, options.dtype))
