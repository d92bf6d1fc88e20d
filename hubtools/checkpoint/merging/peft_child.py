"""The child process that lets PEFT merge, and saves the model as transformers does."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hubtools.checkpoint.headers import read_header
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.merging.loading import (
    fit_vocabulary,
    library_versions,
    load_model,
    stage_adapters,
    with_adapters,
)
from hubtools.checkpoint.shards import read_weights
from hubtools.children import child_main
from hubtools.errors import CheckError
from hubtools.files import disk_error, write_json
from hubtools.progress import Progress

_SHARD = "5GB"


def work(job: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Merge and save; see `peft_engine.merge_with_peft`."""
    versions = library_versions()
    base, new, label = Path(job["base"]), Path(job["new"]), job["label"]
    steps = len(job["adapters"]) + 2
    progress(label, 0, steps, "steps")
    folders = stage_adapters(job["adapters"], new / "adapters", job["residual"])
    places = [Path(adapter["path"]) for adapter in job["adapters"]]
    configs = [read_object(folder / "adapter_config.json") for folder in folders]
    model = load_model(base, _dtype(job["dtype"]), task=str(configs[-1].get("task_type") or ""))
    progress(label, 1, steps, "steps")
    # Adapters of LoRA are merged by one call: a second DoRA takes its norm from the unmerged base.
    together = all(config.get("peft_type") == "LORA" for config in configs)
    groups = [range(len(folders))] if together else [range(n, n + 1) for n in range(len(folders))]
    for group in groups:
        fit_vocabulary(model, _rows(model, [folders[n] for n in group]))
        adapted = with_adapters(model, [folders[n] for n in group], [places[n] for n in group])
        model = _merged(adapted, places[group[0]])
        progress(label, 1 + group[-1] + 1, steps, "steps")
    shutil.rmtree(new / "adapters")
    _save(model, new)
    del model, adapted  # what follows maps base and result
    progress(label, steps, steps, "steps")
    write_json(new / "merged.json", {"versions": versions, "changed": _changed(new, base)})
    return {"versions": versions}


def _dtype(name: str) -> Any:
    import torch

    return getattr(torch, name)


def _rows(model: Any, folders: list[Path]) -> int:
    """Rows of the input embedding that the adapters bring along; else those it has."""
    embedding = model.get_input_embeddings()
    rows, width = embedding.weight.shape
    (name,) = [name for name, module in model.named_modules() if module is embedding]
    for folder in folders:
        for entry in read_header(folder / "adapter_model.safetensors").tensors:
            whole = f".{name}." in entry.name and entry.name.endswith(".weight")
            if whole and "lora_" not in entry.name and entry.shape[1:] == (width,):
                rows = max(rows, entry.shape[0])
    return int(rows)


def _merged(adapted: Any, place: Path) -> Any:
    names = list(adapted.peft_config)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on tied weights: the plan says what becomes of them
            if len(names) == 1:
                return adapted.merge_and_unload()
            return adapted.merge_and_unload(adapter_names=names)
    except Exception as error:  # whatever stops PEFT is what the user has to know
        raise _cannot(place, error) from error


def _save(model: Any, new: Path) -> None:
    from transformers import GenerationConfig

    # The base's own is carried over; an old one may not pass the checks of today.
    model.generation_config = GenerationConfig()
    try:
        model.save_pretrained(new, max_shard_size=_SHARD)
    except OSError as error:
        raise disk_error(error, new) from error
    except Exception as error:
        raise _cannot(new, error) from error


def _changed(new: Path, base: Path) -> list[str]:
    """Saved tensors that are not what the base's become by being loaded and saved."""
    import torch
    from safetensors import safe_open

    weights = read_weights(base)
    places = {name: file for name, (file, _) in weights.tensors().items()}
    changed = []
    with ExitStack() as stack:
        before = {
            file: stack.enter_context(safe_open(base / file, "pt")) for file in weights.headers
        }
        for file in read_weights(new).headers:
            with safe_open(new / file, "pt") as saved:
                for name in saved.keys():
                    now = saved.get_tensor(name)
                    old = before[places[name]].get_tensor(name) if name in places else None
                    if old is None or not torch.equal(old.to(now.dtype), now):
                        changed.append(name)
    return changed


def _cannot(place: Path, error: Exception) -> CheckError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return CheckError(
        "HT110",
        "PEFT cannot merge this adapter",
        where=str(place),
        detail=(f"{type(error).__name__}: {lines[0] if lines else ''}", "Nothing was written."),
        next='leave --engine peft out if it is a LoRA, or publish it unmerged (kind = "adapter")',
    )


if __name__ == "__main__":
    child_main(work)
