"""Whether a merge needs transformers to say what names mean; plain models of our day do not."""

from __future__ import annotations

from hubtools.checkpoint.adapter import Adapter
from hubtools.checkpoint.merging.drafts import Sketch, module_of
from hubtools.checkpoint.merging.experts import through_names
from hubtools.checkpoint.merging.heads import is_head
from hubtools.checkpoint.merging.tensors import AdapterTensors
from hubtools.checkpoint.merging.vocabulary import is_vocabulary, may_be_tied


def needs_names(sketch: Sketch, adapter: Adapter, tensors: AdapterTensors) -> bool:
    """Whether a name has to be looked up, a tie known, or a square matrix told from its transpose.

    Args:
        sketch: the base, with its layers replicated.
        adapter: the adapter.
        tensors: those of the adapter.
    """
    stored = sketch.drafts.keys()
    linear = [module for module, parts in tensors.modules.items() if "A" in parts]
    if through_names(linear, adapter.config, stored):
        return True
    names = [*tensors.whole, *tensors.beneath, *(f"{module}.weight" for module in tensors.modules)]
    names += [f"{module}.bias" for module, parts in tensors.modules.items() if "bias" in parts]
    if any(name not in stored and not is_head(adapter, name) for name in names):
        return True
    embedding = any({"embedding_A", "tokens"} & parts.keys() for parts in tensors.modules.values())
    if may_be_tied(sketch) and (embedding or any(is_vocabulary(sketch, name) for name in names)):
        return True
    return _has_square(sketch, linear) and _has_conv1d(sketch)


def _has_square(sketch: Sketch, modules: list[str]) -> bool:
    shapes = [sketch.drafts[f"{module}.weight"].shape for module in modules]
    return any(len(shape) == 2 and shape[0] == shape[1] for shape in shapes)


def _has_conv1d(sketch: Sketch) -> bool:
    """Whether a bias somewhere is as long as its matrix is wide, and not as it is high."""
    for name, draft in sketch.drafts.items():
        bias = sketch.drafts.get(f"{module_of(name)}.bias")
        if bias is not None and name.endswith(".weight") and len(draft.shape) == 2:
            rows, columns = draft.shape
            if rows != columns and bias.shape == (columns,):
                return True
    return False
