"""The tensors of an adapter file, each told what it is by its name.

Source: the names PEFT writes (`get_peft_model_state_dict`), with the known spellings of other
writers: a missing or doubled prefix, an adapter name, wrappers of compilers and FSDP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from hubtools.checkpoint.adapter import Adapter
from hubtools.checkpoint.adapter_kinds import is_training_state
from hubtools.checkpoint.headers import TensorEntry, read_header
from hubtools.checkpoint.merging.recipe import Stored
from hubtools.checkpoint.merging.refusals import incomplete, refuse

K = TypeVar("K")
Part = Literal["A", "B", "bias", "magnitude", "embedding_A", "embedding_B", "tokens"]

FLOATS = ("F32", "BF16", "F16", "F64")
_WRAPPERS = re.compile(
    r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)
_PREFIX = re.compile(r"(?:module\.)?(?:base_model\.model\.)*")
_NAME = r"(?:\.[^.]+)*"  # of the adapter; some writers keep it, or double it
_PARTS: tuple[tuple[re.Pattern[str], Mapping[str, Part]], ...] = (
    (re.compile(rf"(?P<module>.+)\.lora_(?P<part>[AB]){_NAME}\.weight"), {"A": "A", "B": "B"}),
    (re.compile(rf"(?P<module>.+)\.lora_B{_NAME}\.(?P<part>bias)"), {"bias": "bias"}),
    (
        re.compile(rf"(?P<module>.+)\.lora_(?P<part>embedding_[AB]){_NAME}"),
        {"embedding_A": "embedding_A", "embedding_B": "embedding_B"},
    ),
    (
        re.compile(rf"(?P<module>.+)\.lora_(?P<part>magnitude_vector){_NAME}"),
        {"magnitude_vector": "magnitude"},
    ),
    (
        re.compile(rf"(?P<module>.+)\.token_adapter\.(?P<part>trainable_tokens_delta){_NAME}"),
        {"trainable_tokens_delta": "tokens"},
    ),
)
_BASE = re.compile(r"(?P<module>.+?)\.(?:token_adapter\.)?base_layer\.(?P<leaf>weight|bias)")
_ORIGINAL = re.compile(r"(?P<module>.+?)\.original_module\.(?P<leaf>.+)")
_SAVED = re.compile(r"(?P<module>.+?)\.modules_to_save\.(?:[^.]+\.)?(?P<leaf>.+)")
_OTHERS = re.compile(r"(?:^|\.)(?:lora_|hada_|lokr_|ia3_|oft_|boft_|vera_|trainable_tokens_)")


@dataclass(frozen=True, slots=True)
class AdapterTensors:
    """What an adapter file holds.

    Args:
        count: tensors in the file.
        modules: module path → what was trained for it.
        whole: parameter name → the values it was trained to (modules_to_save, biases), or the rows
            of a resized vocabulary.
        beneath: parameter name → the base's own values that were saved under a trained part.
        ignored: tensors that say nothing about the result.
    """

    count: int
    modules: Mapping[str, Mapping[Part, Stored]]
    whole: Mapping[str, Stored]
    beneath: Mapping[str, Stored]
    ignored: tuple[str, ...]


def read_tensors(adapter: Adapter) -> AdapterTensors:
    """Sort the tensors of `adapter`.

    Raises:
        CheckError: HT111 a tensor of another adapter type, HT114 an adapter that is not complete.
    """
    file = adapter.weights
    modules: dict[str, dict[Part, Stored]] = {}
    whole: dict[str, Stored] = {}
    beneath: dict[str, Stored] = {}
    copies: dict[str, Stored] = {}
    ignored: list[str] = []
    entries = read_header(file).tensors
    for entry in entries:
        stored = Stored(file, entry)
        name = plain_name(entry.name)
        if is_training_state(name) or ".trainable_tokens_original" in name:
            ignored.append(entry.name)
        elif found := _part(name):
            module, part = found
            _require_factor(file, entry, part)
            _put(
                modules.setdefault(module, {}), part, stored, f"{module} has two lora_{part}", file
            )
        elif _OTHERS.search(name):
            raise _other_type(file, entry.name)
        elif match := _SAVED.fullmatch(name):
            _put(copies, f"{match['module']}.{match['leaf']}", stored, f"two of {name}", file)
        elif match := _ORIGINAL.fullmatch(name):
            beneath.setdefault(f"{match['module']}.{match['leaf']}", stored)
        elif match := _BASE.fullmatch(name):
            key = f"{match['module']}.{match['leaf']}"
            target = beneath if match["leaf"] == "weight" else whole
            target[key] = stored
        else:
            _put(whole, name, stored, f"two of {name}", file)
    for name, stored in copies.items():
        if name in whole:
            ignored.append(stored.entry.name)  # PEFT writes it twice with save_embedding_layers
        else:
            whole[name] = stored
    _require_whole(file, modules)
    if not modules and not whole:
        raise incomplete(file, "it holds no trained tensors")
    return AdapterTensors(len(entries), modules, whole, beneath, tuple(ignored))


def plain_name(name: str) -> str:
    """The name of a tensor inside the model: no wrappers, no prefix of PEFT."""
    name = _WRAPPERS.sub("", name)
    return name[_PREFIX.match(name).end() :]  # type: ignore[union-attr]


def _part(name: str) -> tuple[str, Part] | None:
    for pattern, parts in _PARTS:
        if match := pattern.fullmatch(name):
            return match["module"], parts[match["part"]]
    return None


def _put(place: dict[K, Stored], key: K, stored: Stored, twice: str, file: Path) -> None:
    if key in place:
        raise incomplete(file, twice)
    place[key] = stored


def _require_factor(file: Path, entry: TensorEntry, part: Part) -> None:
    dimensions = 1 if part in ("bias", "magnitude") else 2
    if entry.dtype not in FLOATS or not entry.elements or len(entry.shape) < dimensions:
        raise incomplete(file, f"{entry.name} is {entry.dtype} {list(entry.shape)}")


def _require_whole(file: Path, modules: Mapping[str, Mapping[Part, Stored]]) -> None:
    for module, parts in modules.items():
        for pair in (("A", "B"), ("embedding_A", "embedding_B")):
            found = [side for side in pair if side in parts]
            if len(found) == 1:
                raise incomplete(file, f"{module} has lora_{found[0]} alone")
        alone = parts.keys() & {"bias", "magnitude"}
        if alone and "A" not in parts and "embedding_A" not in parts:
            raise incomplete(file, f"{module} has a {min(alone)} and no factors")


def _other_type(file: Path, name: str) -> Exception:
    return refuse(
        "HT111",
        f"adapter tensor {name} belongs to another type than adapter_config.json says",
        file,
        "take adapter_config.json and the weights from one and the same step of the run",
    )
