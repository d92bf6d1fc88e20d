"""The child process that compares logits; see `logits.check_logits`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.merging.loading import (
    activate_all,
    fit_vocabulary,
    library_versions,
    load_model,
    stage_adapters,
    with_adapters,
)
from hubtools.children import child_main
from hubtools.progress import Progress

_TEXTS = (
    "The capital of France is Paris, and the capital of Italy is",
    "def add(a, b):\n    return a + b\n\nprint(add(2,",
    "1 + 1 = 2, 2 + 2 = 4, 4 + 4 =",
)
_LENGTH = 32
_TIMES_ROUNDING = 4
_FLOAT32 = 2e-5  # of the largest logit: products summed in another order
_MANTISSA = {"float32": 24, "float16": 11, "bfloat16": 8}


def work(job: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Compute both; the result is that of `check_logits`."""
    import torch

    versions = library_versions()
    base, merged, scratch = Path(job["base"]), Path(job["merged"]), Path(job["scratch"])
    label = job["label"]
    folders = stage_adapters(job["adapters"], scratch, job["residual"])
    dtype = torch.float32 if job["float32"] else "auto"
    progress(label, 0, 4, "steps")
    try:
        with torch.no_grad():
            touched = _touched(load_model(merged, "auto"), load_model(base, "auto", like=merged))
            model = load_model(merged, dtype)
            prompts = list(_prompts(model, merged, folders))
            ours = _logits(model, prompts)
            progress(label, 1, 4, "steps")
            _perturb(model, touched)
            moved = _logits(model, prompts)
            progress(label, 2, 4, "steps")
            rows = model.get_input_embeddings().weight.shape[0]
            del model
            bare = load_model(base, dtype, like=merged)
            fit_vocabulary(bare, rows)
            without = _logits(bare, prompts)
            progress(label, 3, 4, "steps")
            places = [Path(adapter["path"]) for adapter in job["adapters"]]
            adapted = with_adapters(bare, folders, places)
            activate_all(adapted, places[-1])
            theirs = _logits(adapted, prompts)
            progress(label, 4, 4, "steps")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    rounding, largest = _furthest(ours, moved), _furthest(theirs, None)
    difference = _furthest(ours, theirs)
    bound = _TIMES_ROUNDING * rounding + _FLOAT32 * largest
    return {
        "max_difference": difference,
        "max_logit": largest,
        "bound": bound,
        "rounding": rounding,
        "adapter_effect": _furthest(theirs, without),
        "top1_agreement": _agreement(ours, theirs),
        "prompts": len(prompts),
        "positions": sum(one.shape[-2] for one in ours),
        "dtype": str(adapted.dtype).removeprefix("torch."),
        "equal": difference <= bound,
        "versions": versions,
    }


def _touched(merged: Any, base: Any) -> dict[str, int]:
    """Parameters that are not as in the base → bits of precision they are stored with."""
    import torch

    before = dict(base.named_parameters())
    touched = {}
    for name, now in merged.named_parameters():
        old = before.get(name)
        if old is None or old.shape != now.shape or not torch.equal(old, now):
            touched[name] = _MANTISSA[str(now.dtype).removeprefix("torch.")]
    return touched


def _perturb(model: Any, touched: Mapping[str, int]) -> None:
    import torch

    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        if name in touched:
            noise = torch.rand(parameter.shape).mul_(2).sub_(1)
            parameter.mul_(noise.mul_(2.0 ** -touched[name]).add_(1))


def _prompts(model: Any, merged: Path, adapters: list[Path]) -> Iterator[Any]:
    """Token ids [1, n]: texts when there is a tokenizer, and ids from the whole vocabulary."""
    import torch
    from transformers import AutoTokenizer

    rows = model.get_input_embeddings().weight.shape[0]
    try:
        tokenizer = AutoTokenizer.from_pretrained(merged, local_files_only=True)
    except Exception:  # a model without a tokenizer is compared on ids alone
        tokenizer = None
    for text in _TEXTS if tokenizer is not None else ():
        ids = tokenizer(text, return_tensors="pt")["input_ids"][:, :_LENGTH]
        if ids.numel() and int(ids.max()) < rows:
            yield ids
    sees = model.config.get_text_config() is not model.config
    special = set(_numbers(model.config.to_dict())) if sees else set()
    trained = [number for folder in adapters for number in _token_rows(folder)]
    spread = torch.linspace(0, rows - 1, _LENGTH).long().tolist()
    chosen = [number for number in [*spread, *trained[:_LENGTH]] if number not in special]
    yield torch.tensor([chosen])


def _token_rows(folder: Path) -> list[int]:
    rows = read_object(folder / "adapter_config.json").get("trainable_token_indices") or []
    lists = rows.values() if isinstance(rows, Mapping) else [rows]
    return [int(number) for numbers in lists for number in numbers]


def _numbers(config: Mapping[str, Any]) -> Iterator[int]:
    """Ids that stand for pictures and the like; they mean nothing without one."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _numbers(value)
        elif isinstance(value, int) and name.endswith(("_token_id", "_token_index")):
            yield value


def _logits(model: Any, prompts: list[Any]) -> list[Any]:
    found = []
    for ids in prompts:
        more = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
        found.append(model(input_ids=ids, **more).logits.float())
    return found


def _furthest(ours: list[Any], theirs: list[Any] | None) -> float:
    pairs = zip(ours, theirs, strict=True) if theirs is not None else ((one, 0) for one in ours)
    return max(float((one - other).abs().max()) for one, other in pairs)


def _agreement(ours: list[Any], theirs: list[Any]) -> float:
    same = [(a.argmax(-1) == b.argmax(-1)).float() for a, b in zip(ours, theirs, strict=True)]
    return float(sum(one.sum() for one in same) / sum(one.numel() for one in same))


if __name__ == "__main__":
    child_main(work)
