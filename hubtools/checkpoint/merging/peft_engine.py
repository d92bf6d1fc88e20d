"""Adapters that only PEFT can merge: it merges in a child, the streaming engine writes the result.

PEFT loads the whole model and saves it in transformers' own layout (`raw`). The tensors that
changed there become the sources of the result; layout, dtypes, configuration and all other files
are made the same way as for any merge.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubtools.checkpoint.adapter import Adapter
from hubtools.checkpoint.headers import read_header
from hubtools.checkpoint.inspect import inspect_checkpoint
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.merging.config_edits import everywhere
from hubtools.checkpoint.merging.drafts import Draft, Sketch, kind_of
from hubtools.checkpoint.merging.heads import adopt_head
from hubtools.checkpoint.merging.memory import available_memory, merge_memory, require_memory
from hubtools.checkpoint.merging.options import MergeOptions
from hubtools.checkpoint.merging.plan import (
    MergePlan,
    base_sketch,
    planned,
    require_sixteen_bits,
)
from hubtools.checkpoint.merging.recipe import Stored
from hubtools.checkpoint.merging.vocabulary import follow_rows, is_vocabulary
from hubtools.checkpoint.merging.ways import require_mergeable
from hubtools.checkpoint.shards import read_weights
from hubtools.children import run_child
from hubtools.files import sync_directory
from hubtools.progress import Progress, silent

_RECORD = "merged.json"
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}


@dataclass(frozen=True, slots=True)
class PeftPlan:
    """What can be said before PEFT has merged.

    Args:
        memory: bytes it is going to take.
        kinds: type of each adapter.
    """

    adapters: tuple[Adapter, ...]
    base: Path
    options: MergeOptions
    memory: int
    kinds: tuple[str, ...]
    adapter_tensors: int
    bytes: int
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The `plan` object of `hubtools merge --engine peft --dry-run --json`."""
        return {
            "engine": "peft",
            "types": list(self.kinds),
            "adapter_tensors": self.adapter_tensors,
            "bytes": self.bytes,
            "memory": self.memory,
            "memory_available": available_memory(),
            "options": self.options.to_json(),
            "notes": list(self.notes),
        }


def plan_peft(adapters: Sequence[Adapter], base: Path, options: MergeOptions) -> PeftPlan:
    """Refuse what PEFT cannot merge either, and say what the merge takes.

    Raises:
        CheckError: HT110 refused, HT115 a base that is quantised or an adapter; HT10x.
        EnvironmentFailure: HT153 too little memory.
    """
    draft = base_sketch(base)
    for adapter in adapters:
        require_mergeable(adapter, base_is_residual=options.base_is_residual)
    require_sixteen_bits(draft, adapters)
    need = merge_memory(base, adapters) * (2 if options.dtype == "float32" else 1)
    fix = "run the same command where there is more memory"
    require_memory(need, "merging with PEFT", base, fix)
    return PeftPlan(
        adapters=tuple(adapters),
        base=base,
        options=options,
        memory=need,
        kinds=tuple(adapter.config.peft_type for adapter in adapters),
        adapter_tensors=_tensors(adapters),
        bytes=draft.weights.bytes,
        notes=tuple(draft.notes),
    )


def merge_with_peft(
    plan: PeftPlan, raw: Path, *, log: Path, progress: Progress = silent
) -> dict[str, Any]:
    """Let PEFT merge into `raw`, which appears whole or not at all; one that is there is kept.

    Returns:
        versions of torch, transformers and peft.

    Raises:
        CheckError: HT130 PEFT cannot load it, HT110 it cannot merge it.
        EnvironmentFailure: HT123 a library is missing, HT901 disk full, HT904 the child died.
    """
    if not raw.exists():
        new = raw.with_name(f"{raw.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        try:
            run_child(
                "hubtools.checkpoint.merging.peft_child",
                _job(plan, new),
                log=log,
                what=f"merging into {plan.base} with PEFT",
                progress=progress,
                env=_OFFLINE,
            )
            new.rename(raw)
            sync_directory(raw.parent)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
    versions: dict[str, Any] = read_object(raw / _RECORD)["versions"]
    return versions


def plan_of_raw(
    adapters: Sequence[Adapter], base: Path, options: MergeOptions, raw: Path
) -> MergePlan:
    """The plan that makes the result out of the base and what PEFT saved in `raw`."""
    draft = base_sketch(base)
    require_sixteen_bits(draft, adapters)
    record = read_object(raw / _RECORD)
    saved = {
        name: Stored(raw / file, entry)
        for name, (file, entry) in read_weights(raw).tensors().items()
    }
    for name in record["changed"]:
        if name in draft.drafts:
            draft.drafts[name].start_from(saved[name], kind_of(name))
        else:
            _add(draft, adapters[-1], name, saved[name])
    _follow_tie(draft, saved, read_object(raw / "config.json"))
    follow_rows(draft, adapters[-1].weights)
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    draft.note(f"merged by PEFT itself ({versions})")
    return planned(draft, adapters, options, _tensors(adapters), merged_by="peft")


def _job(plan: PeftPlan, new: Path) -> dict[str, Any]:
    wide = plan.options.dtype == "float32"
    return {
        "adapters": [
            {"path": str(adapter.path.absolute()), "weights": str(adapter.weights.absolute())}
            for adapter in plan.adapters
        ],
        "base": str(plan.base.absolute()),
        "new": str(new.absolute()),
        "dtype": "float32" if wide else inspect_checkpoint(plan.base).dtype,
        "residual": plan.options.base_is_residual,
        "label": f"merge with PEFT into {plan.base.name}",
    }


def _add(draft: Sketch, adapter: Adapter, name: str, values: Stored) -> None:
    """A tensor that the base does not have: a head, or an output embedding of its own."""
    if adopt_head(draft, adapter, name, values):
        return
    file = next(reversed(draft.drafts.values())).file
    draft.drafts[name] = Draft(name, file, values, None, values.entry.dtype, kind=kind_of(name))
    draft.note(f"{name} is new: PEFT saves it apart from the tensor that it shared")


def _tensors(adapters: Sequence[Adapter]) -> int:
    return sum(len(read_header(adapter.weights).tensors) for adapter in adapters)


def _follow_tie(draft: Sketch, saved: dict[str, Stored], config: dict[str, Any]) -> None:
    """Untie where PEFT did; a stored copy of a matrix that is still tied follows its source."""
    said = everywhere(draft.config, "tie_word_embeddings")
    untied = not any(everywhere(config, "tie_word_embeddings").values())
    if untied and any(said.values()):
        draft.edits.update(dict.fromkeys(said, False))
    for name, copy in draft.drafts.items():
        if name in saved or not is_vocabulary(draft, name):
            continue
        for other in draft.drafts.values():
            if other.replaced and other.base and copy.base and is_vocabulary(draft, other.name):
                if other.base.entry.shape == copy.base.entry.shape:
                    copy.start_from(other.source, kind_of(name))
