"""What the model's checkpoint must look like: names and shapes, in memory and on disk.

From the base's own headers where they are there; else from transformers, which builds the class on
the meta device and undoes its loading conversions as `save_pretrained` would. With copies answered
by views, every on-disk tensor is a view of an in-memory one, and its storage offset says where it
lies: no table of ours, for experts as for renames.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hubtools.checkpoint.ingesting.torchfile import NAMES
from hubtools.checkpoint.ingesting.wanted import Expected, View
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.merging.config_edits import edited, everywhere
from hubtools.checkpoint.shards import read_weights
from hubtools.errors import CheckError


def from_base(base: Path, config: Mapping[str, Any]) -> Expected:
    """The layout of a base model: what is on its disk.

    Raises:
        CheckError: HT101, HT104, HT105 when its weights are not whole.
    """
    entries = {name: entry for name, (_, entry) in read_weights(base).tensors().items()}
    shapes = {name: entry.shape for name, entry in entries.items()}
    narrow = any(entry.dtype in ("BF16", "F16") for entry in entries.values())
    wide = {name for name, entry in entries.items() if narrow and entry.dtype == "F32"}
    tied: dict[str, str] = {}
    text = config.get("text_config")
    ties = config.get(
        "tie_word_embeddings", isinstance(text, dict) and text.get("tie_word_embeddings")
    )
    heads = [name for name in shapes if name.endswith("embed_tokens.weight")]
    if ties and len(heads) == 1 and "lm_head.weight" not in shapes:
        tied["lm_head.weight"] = heads[0]
    return Expected(
        memory={**shapes, **{name: shapes[source] for name, source in tied.items()}},
        disk={name: View(name, 0, shape) for name, shape in shapes.items()},
        tied=tied,
        wide=frozenset(wide),
        origin="the base's weight files",
        dtypes={name: entry.dtype for name, entry in entries.items()},
    )


def from_transformers(folder: Path) -> tuple[Expected, ...]:
    """The layouts of the class that `folder/config.json` names; the usual one first.

    There are two where a part of the model may be stored under a prefix or without it: transformers
    loads both, and only the base's files can say which one people have.

    Raises:
        CheckError: HT173 when this transformers does not know it, or cannot say how it is saved.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import PrefixChange

    model = _meta_model(folder)
    layouts = [_layout(folder, model)]
    conversions = get_model_conversion_mapping(model, add_legacy=False)
    if any(isinstance(conversion, PrefixChange) for conversion in conversions):
        # What a loaded model remembers; one that was made anew takes no prefix for granted.
        model._weight_conversions = conversions
        layouts.append(_layout(folder, model))
    return tuple(layouts)


def _layout(folder: Path, model: Any) -> Expected:
    import torch
    from transformers.core_model_loading import revert_weight_conversion

    ties: dict[str, str] = getattr(model, "all_tied_weights_keys", None) or {}
    state = model.state_dict()
    tied = {name: source for name, source in ties.items() if name in state and source in state}
    # Distinct storages, whatever the model shares: a storage then names one tensor.
    kept = {
        name: torch.empty_like(tensor, device="meta")
        for name, tensor in state.items()
        if name not in tied
    }
    try:
        with _views_for_copies():
            saved = revert_weight_conversion(model, dict(kept))
    except Exception as error:  # transformers' own operations; any of them may refuse
        raise _unknown(folder, f"its saving conversions cannot be traced: {error}") from error
    disk = _views(folder, kept, saved)
    patterns = [re.compile(rf"(^|\.){re.escape(name)}(\.|$)") for name in _wide_modules(model)]
    wide = [n for n, view in disk.items() if any(p.search(view.source) for p in patterns)]
    return Expected(
        memory={name: tuple(tensor.shape) for name, tensor in state.items()},
        disk=disk,
        tied=tied,
        wide=frozenset(wide),
        origin=f"transformers' {type(model).__name__}",
        dtypes={
            name: NAMES.get(str(state[view.source].dtype).removeprefix("torch."), "")
            for name, view in disk.items()
        },
    )


def _views(folder: Path, kept: Mapping[str, Any], saved: Mapping[str, Any]) -> dict[str, View]:
    """Where each on-disk tensor lies in an in-memory one."""
    owners = {tensor.untyped_storage()._cdata: name for name, tensor in kept.items()}
    disk = {}
    for name, tensor in saved.items():
        owner = owners.get(tensor.untyped_storage()._cdata)
        if owner is None or not tensor.is_contiguous():
            raise _unknown(folder, f"{name} is no plain part of an in-memory tensor")
        disk[name] = View(owner, int(tensor.storage_offset()), tuple(tensor.shape))
    sizes = [sum(tensor.numel() for tensor in side.values()) for side in (kept, saved)]
    if sizes[0] != sizes[1]:
        raise _unknown(folder, "its on-disk tensors do not hold all of the in-memory ones")
    return disk


def _meta_model(folder: Path) -> Any:
    import torch
    import transformers

    fields = read_object(folder / "config.json")
    try:
        with _readable(folder, fields) as place:
            config = transformers.AutoConfig.from_pretrained(place, trust_remote_code=False)
        named = (config.architectures or [""])[0]
        kind = getattr(transformers, str(named), None)
        if kind is None or not hasattr(kind, "from_pretrained"):
            raise ValueError(f"no class {named or '(architectures is empty)'}")
        with torch.device("meta"):
            return kind(config)
    except Exception as error:  # configs of other versions fail in their own ways
        words = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        kind_name = fields.get("model_type") or "(no model_type)"
        raise _unknown(folder, f"model_type {kind_name}: {words}") from error


@contextmanager
def _readable(folder: Path, fields: Mapping[str, Any]) -> Iterator[Path]:
    """A directory whose config.json declares no dtype that torch does not have, as `auto`."""
    unknown = {
        path
        for key in ("dtype", "torch_dtype")
        for path, value in everywhere(fields, key).items()
        if isinstance(value, str) and value.removeprefix("torch.") not in NAMES
    }
    if not unknown:
        yield folder
        return
    with TemporaryDirectory(prefix="hubtools-config-") as place:
        data = edited((folder / "config.json").read_bytes(), dict.fromkeys(unknown, "float32"))
        (Path(place) / "config.json").write_bytes(data)
        yield Path(place)


def _wide_modules(model: Any) -> set[str]:
    found = getattr(model, "_keep_in_fp32_modules_strict", None)
    return {str(name) for name in found or ()}


def _views_for_copies() -> Any:
    """While this is on, a copy of a tensor is the tensor itself."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Views(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, call: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if call is torch.ops.aten.clone.default:
                return torch.ops.aten.alias.default(args[0])
            return call(*args, **(kwargs or {}))

    return Views()  # type: ignore[no-untyped-call]


def _unknown(folder: Path, why: str) -> CheckError:
    return CheckError(
        "HT173",
        "cannot say what this model's checkpoint must look like",
        where=str(folder / "config.json"),
        detail=(why, "Nothing was written."),
        next="give the base model with its weights (--base DIR), or pip install -U transformers",
    )
