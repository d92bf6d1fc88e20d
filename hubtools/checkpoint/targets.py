"""Which modules adapter_config.json announces, by the rule with which PEFT finds them.

Source: `check_target_module_exists` of PEFT 0.21 (tuners/tuners_utils.py). Factors for any other
module are left out without a word when PEFT loads the adapter.
"""

from __future__ import annotations

import re
from typing import Any

from hubtools.checkpoint.adapter import AdapterConfig
from hubtools.checkpoint.patterns import fits

ALL_LINEAR = "all-linear"
_INNER = re.compile(r"\.base_layer(?=\.|$)")
_FIRST_INDEX = re.compile(r".*?\.[^.]*\.(\d+)\.")


def announces(config: AdapterConfig, module: str) -> bool:
    """Whether PEFT would give the module of this path factors.

    `all-linear` is taken to mean any module: which ones are linear is not known here.

    Args:
        config: of a LoRA adapter.
        module: path as the adapter has it; wrappers of PEFT inside do not count.

    Raises:
        CheckError: HT110 a pattern that cannot be used.
    """
    module = _INNER.sub("", module)
    return _parameter(config, module) or (_found(config, module) and not _excluded(config, module))


def _parameter(config: AdapterConfig, module: str) -> bool:
    """Whether a parameter of the module itself is a target."""
    for target in _strings(config.fields.get("target_parameters")):
        owner = target.rpartition(".")[0]
        # A target without a module names a parameter of any module.
        if not owner or f".{module}".endswith(f".{owner}"):
            return True
    return False


def _found(config: AdapterConfig, module: str) -> bool:
    targets = config.fields.get("target_modules")
    if isinstance(targets, str):
        return targets.lower() == ALL_LINEAR or fits(targets, module, config.path)
    if not isinstance(targets, list):
        # PEFT then has targets of its own for the kind of model.
        return not config.fields.get("target_parameters")
    return _ends_with_one(module, _strings(targets)) and _in_layers(config, module)


def _excluded(config: AdapterConfig, module: str) -> bool:
    stated = config.fields.get("exclude_modules")
    if isinstance(stated, str) and stated:
        out = fits(stated, module, config.path)
    else:
        out = _ends_with_one(module, _strings(stated))
    saved = _strings(config.fields.get("modules_to_save"))
    return out or any(fits(rf"(?:.*\.)?{key}(?:\..*)?", module, config.path) for key in saved)


def _in_layers(config: AdapterConfig, module: str) -> bool:
    wanted = config.fields.get("layers_to_transform")
    if wanted is None or wanted == []:
        return True
    index = _layer(config, module)
    return index is not None and (index in wanted if isinstance(wanted, list) else index == wanted)


def _layer(config: AdapterConfig, module: str) -> int | None:
    """The number of the layer a module is in."""
    stated = config.fields.get("layers_pattern")
    patterns = [stated] if isinstance(stated, str) and stated else _strings(stated)
    if not patterns:
        match = _FIRST_INDEX.match(module)
        return int(match[1]) if match else None
    words = module.split(".")
    for pattern in patterns:
        for at, word in enumerate(words[1:-1], 1):
            if word.isdecimal() and fits(pattern, ".".join(words[:at]), config.path, below=True):
                return int(word)
    return None


def _ends_with_one(module: str, keys: list[str]) -> bool:
    return any(f".{module}".endswith(f".{key}") for key in keys)


def _strings(value: Any) -> list[str]:
    return [key for key in value if isinstance(key, str)] if isinstance(value, list) else []
