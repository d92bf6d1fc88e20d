"""What adapter_config.json announces has to be in the file, and nothing it does not announce.

A part that was trained and then lost on the way is the quietest failure a merge can have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from hubtools.checkpoint.adapter import Adapter
from hubtools.checkpoint.merging.drafts import Sketch, module_of
from hubtools.checkpoint.merging.refusals import incomplete, refuse
from hubtools.checkpoint.merging.tensors import AdapterTensors, Part
from hubtools.checkpoint.merging.vocabulary import is_vocabulary, may_be_tied, named_vocabulary
from hubtools.checkpoint.naming.names import NameMap
from hubtools.checkpoint.targets import ALL_LINEAR, announces

_LAYERS = ("Linear", "Conv1D", "Conv1d", "Conv2d", "Conv3d", "Embedding")
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def require_stated(
    adapter: Adapter, tensors: AdapterTensors, sketch: Sketch, names: NameMap | None
) -> None:
    """Compare an adapter's configuration with its tensors; note layers that have no factors.

    Args:
        adapter: the adapter.
        tensors: those of the adapter.
        sketch: of the result, its ties known.
        names: the base's name map, if there is one: what a module is called in memory.

    Raises:
        CheckError: HT110 a pattern that cannot be used, HT111 a magnitude or a bias that is not
            announced, HT114 something that is announced and not there.
    """
    fields = adapter.config.fields
    _require_parts(adapter, tensors)
    modules = {module_of(name) for name in sketch.drafts}
    saved = {module_of(name) for name in tensors.whole}
    for key in _names(fields, "modules_to_save"):
        # PEFT lists heads of every kind for a classifier; those of other models match nothing.
        expected = named_vocabulary(f"{key}.weight") or _within(key, modules)
        if expected and not _within(key, saved):
            raise _lost(adapter, f"modules_to_save names {key}")
    _note_layers(adapter, tensors, sketch, _matrices(sketch, names))
    rows = fields.get("trainable_token_indices")
    if rows and not any("tokens" in parts for parts in tensors.modules.values()):
        raise _lost(adapter, "trainable_token_indices names token rows")


def _require_parts(adapter: Adapter, tensors: AdapterTensors) -> None:
    stated: tuple[tuple[Part, str], ...] = (("magnitude", "use_dora"), ("bias", "lora_bias"))
    for module, parts in tensors.modules.items():
        for part, option in stated:
            announced = bool(adapter.config.fields.get(option))
            if part in parts and not announced:
                raise refuse(
                    "HT111",
                    f"adapter tensor {parts[part].entry.name} has no part in what"
                    f" adapter_config.json says: {option} is not set",
                    adapter.weights,
                    "take adapter_config.json and the weights from one step of the run",
                )
            if announced and "A" in parts and part not in parts:
                raise incomplete(adapter.weights, f"{module} has no {part}, despite {option}")


def require_announced(
    adapter: Adapter, tensors: AdapterTensors, sketch: Sketch, names: NameMap | None
) -> None:
    """Refuse factors that PEFT would leave out, and targets that lost theirs.

    Args:
        adapter: the adapter.
        tensors: those of the adapter.
        sketch: of the result, its ties known.
        names: as for `require_stated`.

    Raises:
        CheckError: HT110 a pattern that cannot be used, HT111 factors that are not announced, HT114
            a target without factors.
    """
    config = adapter.config
    lost = lost_target(adapter, tensors, sketch, names)
    if lost:
        raise _lost(adapter, f"target_modules names {lost}")
    strange = [
        module
        for module, parts in tensors.modules.items()
        if {"A", "embedding_A"} & parts.keys()
        and not _announced(adapter, module, parts, sketch, names)
    ]
    if strange:
        shown = ", ".join(strange[:3])
        more = f" and {len(strange) - 3} more" if len(strange) > 3 else ""
        raise refuse(
            "HT111",
            f"{len(strange)} modules have factors and are not among those that adapter_config.json"
            " announces, so PEFT leaves them out",
            config.path,
            "correct adapter_config.json (target_modules, exclude_modules, layers_to_transform,"
            " modules_to_save), or save the adapter again from the training run",
            f"not announced: {shown}{more}",
        )


def lost_target(
    adapter: Adapter, tensors: AdapterTensors, sketch: Sketch, names: NameMap | None
) -> str:
    """A listed target that the base has and the file holds no tensor for; empty if none."""
    fields = adapter.config.fields
    saved = {module_of(name) for name in tensors.whole}
    matrices = _matrices(sketch, names)
    now = [_now(module, names) for module in tensors.modules]
    for key in _names(fields, "target_modules"):
        # A tied output matrix is not stored, and may be a target all the same.
        tied = names is None and named_vocabulary(f"{key}.weight") and may_be_tied(sketch)
        places = [m for m in (*matrices, *([key] if tied else [])) if f".{m}".endswith(f".{key}")]
        expected = any(announces(adapter.config, module) for module in places)
        if expected and not _within(key, [*tensors.modules, *now, *saved]):
            return key
    return ""


def _announced(
    adapter: Adapter,
    module: str,
    parts: Mapping[Part, Any],
    sketch: Sketch,
    names: NameMap | None,
) -> bool:
    fields, weight = adapter.config.fields, f"{module}.weight"
    vocabulary = is_vocabulary(sketch, weight) or weight in sketch.tied
    if fields.get("ensure_weight_tying") and vocabulary:
        return True  # PEFT adapts both when one is announced
    if str(fields.get("target_modules")).lower() == ALL_LINEAR:
        if "embedding_A" in parts or named_vocabulary(weight):
            return False
    # An adapter of an older release may be announced by either name of a module.
    return any(announces(adapter.config, name) for name in (module, _now(module, names)))


def _now(module: str, names: NameMap | None) -> str:
    """What a module of an older release is called in memory today."""
    weight = f"{module}.weight"
    return module_of(names.asked.get(weight, weight)) if names else module


def _matrices(sketch: Sketch, names: NameMap | None) -> list[str]:
    """Modules of the base that own a matrix; by stored names without experts, which are stacked."""
    if names is not None:
        return [module for module, kind in names.modules.items() if kind in _LAYERS]
    return [
        module_of(name)
        for name, draft in sketch.drafts.items()
        if name.endswith(".weight") and len(draft.shape) > 1 and ".experts." not in name
    ]


def _note_layers(
    adapter: Adapter, tensors: AdapterTensors, sketch: Sketch, matrices: list[str]
) -> None:
    """Say when some layers lack the factors that the same module of other layers has."""
    with_factors = {
        m for m, parts in tensors.modules.items() if {"A", "embedding_A"} & parts.keys()
    }
    kinds = {_NUMBER.sub("*", module) for module in with_factors}
    expected = [
        module
        for module in matrices
        if _NUMBER.sub("*", module) in kinds and announces(adapter.config, module)
    ]
    total = Counter(_NUMBER.sub("*", module) for module in expected)
    found = Counter(_NUMBER.sub("*", module) for module in expected if module in with_factors)
    for kind, count in total.items():
        if 0 < found[kind] < count:
            sketch.note(
                f"{found[kind]} of {count} {kind} have factors; the others stay as they are"
            )


def _names(fields: Mapping[str, Any], option: str) -> list[str]:
    value = fields.get(option)
    return [str(key) for key in value] if isinstance(value, list) else []


def _within(key: str, modules: Iterable[str]) -> bool:
    """Whether PEFT would find a module by this name: one of them is it, or lies inside it."""
    return any(f".{key}." in f".{module}." for module in modules)


def _lost(adapter: Adapter, what: str) -> Exception:
    return incomplete(adapter.weights, f"{what}, and the file holds no tensor for it")
