"""What PEFT and transformers themselves make of a base and its adapters: tensors and logits."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from zoo_adapters import ADDED_TOKENS


def load_base(path: Path, *, classes: int = 0, dtype: str = "auto") -> Any:
    """The model in a directory, as its own class; with `classes`, with a classification head."""
    import torch
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        AutoModelForSequenceClassification,
    )

    config = json.loads((path / "config.json").read_bytes())
    kind = dtype if dtype == "auto" else getattr(torch, dtype)
    if classes or "ForSequenceClassification" in config["architectures"][0]:
        more = {"num_labels": classes} if classes else {}
        return AutoModelForSequenceClassification.from_pretrained(path, dtype=kind, **more)
    visual = "vision_config" in config
    loader = AutoModelForImageTextToText if visual else AutoModelForCausalLM
    # The default way to run experts has no float64.
    return loader.from_pretrained(path, dtype=kind, experts_implementation="eager").eval()


def stored(path: Path) -> dict[str, Any]:
    """All tensors of a directory by their names on disk."""
    from safetensors.torch import load_file

    return {
        name: tensor
        for file in sorted(path.glob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


@cache
def peft_merged(base: Path, *adapters: Path, dtype: str = "auto") -> dict[str, Any]:
    """Tensors by on-disk name after PEFT's own load, merge and save, as it does by default.

    Several adapters are merged in turn.
    """
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT warns about tied weights, which is the point here
        peft, names = _with_adapters(base, adapters, dtype)
        peft.merge_and_unload(adapter_names=names).save_pretrained(folder)
        merged = stored(Path(folder))
        return {name: tensor.clone() for name, tensor in merged.items()}


def peft_config(base: Path, *adapters: Path) -> dict[str, Any]:
    """config.json as PEFT's merge writes it."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft, names = _with_adapters(base, adapters, "auto")
        peft.merge_and_unload(adapter_names=names).save_pretrained(folder)
        config: dict[str, Any] = json.loads((Path(folder) / "config.json").read_bytes())
        return config


def _with_adapters(base: Path, adapters: Sequence[Path], dtype: str) -> tuple[Any, list[str]]:
    from peft import PeftModel

    model = load_base(base, classes=3 if adapters[0].name == "classifier" else 0, dtype=dtype)
    if adapters[0].name.startswith("resized"):
        model.resize_token_embeddings(model.get_input_embeddings().num_embeddings + ADDED_TOKENS)
    names = [f"adapter{number}" for number in range(len(adapters))]
    places = [_place(adapter) for adapter in adapters]
    peft = PeftModel.from_pretrained(model, places[0], adapter_name=names[0])
    for name, place in zip(names[1:], places[1:], strict=True):
        peft.load_adapter(place, adapter_name=name)
    if adapters[0].name == "replicated" and (kinds := getattr(model.config, "layer_types", None)):
        model.config.layer_types = kinds * 2  # PEFT forgets it, and the model cannot answer
    return peft.eval(), names


def _place(adapter: Path) -> Path:
    if (adapter / "adapter_config.json").exists():
        return adapter
    (nested,) = adapter.glob("*/adapter_config.json")
    return nested.parent


def questions(kind: str) -> dict[str, Any]:
    """Inputs of a model of this kind; with a picture for those that see."""
    import torch

    torch.manual_seed(3)
    ids = torch.randint(3, 120, (1, 12))
    picture = torch.tensor([[122, 120, 120, 120, 120, 123]])
    if kind == "qwen2_5_vl":
        return {
            "input_ids": torch.cat([picture, ids], 1),
            "mm_token_type_ids": torch.cat([picture == 120, torch.zeros_like(ids)], 1).int(),
            "pixel_values": torch.randn(16, 3 * 2 * 4 * 4),
            "image_grid_thw": torch.tensor([[1, 4, 4]]),
        }
    if kind == "gemma3":
        whole = torch.cat([picture, ids], 1)
        return {
            "input_ids": whole,
            "token_type_ids": (whole == 120).int(),
            "pixel_values": torch.randn(1, 3, 16, 16),
        }
    return {"input_ids": ids}


def merged_logits(path: Path, *, double: bool = False) -> Any:
    """Logits of the model in a directory; `double`: computed in float64."""
    return _logits(load_base(path), double)


def adapter_logits(base: Path, *adapters: Path, double: bool = False) -> Any:
    """Logits of base and adapters without merging; several adapters are all active."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft, names = _with_adapters(base, adapters, "auto")
        if len(names) > 1:
            peft.base_model.set_adapter(names)
        return _logits(peft, double)


def _logits(model: Any, double: bool) -> Any:
    import torch

    if double:
        model = model.double()
    inputs = {
        name: value.to(next(model.parameters()).dtype) if value.is_floating_point() else value
        for name, value in questions(model.config.model_type).items()
    }
    with torch.no_grad():
        return model(**inputs).logits.double()


def assert_same_bytes(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """The same names, dtypes, shapes and bytes; the message lists what differs."""
    assert ours.keys() == theirs.keys(), sorted(ours.keys() ^ theirs.keys())
    wrong = [name for name, tensor in theirs.items() if not _same(ours[name], tensor)]
    assert not wrong, f"other bytes: {wrong}"


def _same(left: Any, right: Any) -> bool:
    import torch

    if (left.dtype, left.shape) != (right.dtype, right.shape):
        return False
    left, right = (side.contiguous().reshape(-1).view(torch.uint8) for side in (left, right))
    return torch.equal(left, right)
