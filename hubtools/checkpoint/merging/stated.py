"""What adapter_config.json announces has to be in the file, and nothing it does not announce.

A part that was trained and then lost on the way is the quietest failure a merge can have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from hubtools.checkpoint.adapter import Adapter
from hubtools.checkpoint.merging.drafts import module_of
from hubtools.checkpoint.merging.refusals import incomplete, refuse
from hubtools.checkpoint.merging.tensors import AdapterTensors, Part
from hubtools.checkpoint.merging.vocabulary import is_vocabulary


def require_stated(adapter: Adapter, tensors: AdapterTensors, stored: Collection[str]) -> None:
    """Compare an adapter's configuration with its tensors.

    Args:
        adapter: the adapter.
        tensors: those of the adapter.
        stored: names of the base's tensors.

    Raises:
        CheckError: HT111 a magnitude or bias that is not announced, HT114 something that is
            announced and not there.
    """
    fields = adapter.config.fields
    _require_parts(adapter, tensors)
    modules = {module_of(name) for name in stored}
    saved = {module_of(name) for name in tensors.whole}
    for key in _names(fields, "modules_to_save"):
        # PEFT lists heads of every kind for a classifier; those of other models match nothing.
        expected = is_vocabulary(f"{key}.weight") or _within(key, modules)
        if expected and not _within(key, saved):
            raise _lost(adapter, f"modules_to_save names {key}")
    for key in _names(fields, "target_modules"):
        excluded = fields.get("exclude_modules") or fields.get("layers_to_transform")
        found = _within(key, [*tensors.modules, *saved])
        if is_vocabulary(f"{key}.weight") and not excluded and not found:
            raise _lost(adapter, f"target_modules names {key}")
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


def _names(fields: Mapping[str, Any], option: str) -> list[str]:
    value = fields.get(option)
    return [str(key) for key in value] if isinstance(value, list) else []


def _within(key: str, modules: Iterable[str]) -> bool:
    """Whether PEFT would find a module by this name: one of them is it, or lies inside it."""
    return any(f".{key}." in f".{module}." for module in modules)


def _lost(adapter: Adapter, what: str) -> Exception:
    return incomplete(adapter.weights, f"{what}, and the file holds no tensor for it")
