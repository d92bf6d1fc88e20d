"""Does the merged model answer as base and adapter do? Asked after the merge, on a few prompts.

Both are computed in float32 when memory allows, so that the difference is that of the stored
weights. The bound is not a constant: the touched weights of the merged model are moved at random by
up to half a unit in the last place of their dtype, which is what rounding them once may do, and the
difference must stay within a small multiple of what that does to the logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hubtools.checkpoint.adapter import Adapter
from hubtools.checkpoint.headers import read_header
from hubtools.checkpoint.merging.memory import available_memory, load_memory, require_memory
from hubtools.checkpoint.merging.tensors import plain_name
from hubtools.checkpoint.naming.names import name_map
from hubtools.checkpoint.shards import read_weights
from hubtools.children import run_child
from hubtools.errors import CheckError
from hubtools.progress import Progress, silent

_LAYERS = ("Linear", "Conv1D", "Embedding")
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def check_logits(
    adapters: Sequence[Adapter],
    base: Path,
    merged: Path,
    *,
    scratch: Path,
    log: Path,
    base_is_residual: bool = False,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Compare logits of `merged` with those of `base` under `adapters`, all of them active.

    Args:
        adapters: in the order they were merged.
        base: directory they were merged into.
        merged: directory of the result.
        scratch: directory for links and a converted tokenizer; removed afterwards.
        log: where the child process tells its story.
        base_is_residual: as in the merge.
        progress: steps done.

    Returns:
        `max_difference` and `max_logit` (absolute), `bound`, `rounding` (what moving the weights
        within their rounding does), `adapter_effect` (largest difference that the adapter makes),
        `top1_agreement` (share of positions), `prompts`, `positions`, `dtype` of the computation,
        `equal` (bool: within the bound), `versions`.

    Raises:
        CheckError: HT130 one of them does not load.
        EnvironmentFailure: HT153 too little memory, HT123 a library is missing, HT904.
    """
    weights = read_weights(merged)
    wide, narrow = (load_memory(weights, adapters, width) for width in (4, 2))
    free = available_memory()
    in_float32 = free is None or wide <= free
    if not in_float32:
        fix = "run it where there is more memory, or leave --check logits out"
        require_memory(narrow, "comparing logits", merged, fix)
    return run_child(
        "hubtools.checkpoint.merging.logits_child",
        {
            "adapters": [
                {
                    "path": str(adapter.path.absolute()),
                    "weights": str(adapter.weights.absolute()),
                    "renames": _renames(adapter, base, log),
                }
                for adapter in adapters
            ],
            "base": str(base.absolute()),
            "merged": str(merged.absolute()),
            "scratch": str(scratch.absolute()),
            "float32": in_float32,
            "residual": base_is_residual,
            "label": f"compare {merged.name}",
        },
        log=log,
        what=f"comparing the logits of {merged}",
        progress=progress,
        env=_OFFLINE,
    )


def _renames(adapter: Adapter, base: Path, log: Path) -> dict[str, str]:
    """Tensors of layers that are called otherwise in memory → names under which PEFT finds them.

    Experts are left alone: PEFT converts them itself.
    """
    if adapter.config.peft_type != "LORA":
        return {}
    parts = {
        entry.name: plain_name(entry.name).partition(".lora_")
        for entry in read_header(adapter.weights).tensors
    }
    asked = {
        name: f"{module}.weight" if lora else module for name, (module, lora, _) in parts.items()
    }
    names = name_map(base, sorted(set(asked.values())), log)
    renames = {}
    for name, (_, lora, rest) in parts.items():
        found = names.asked.get(asked[name], asked[name])
        if found == asked[name] or asked[name] in names.asked_parts:
            continue
        owner, _, leaf = found.rpartition(".")
        if names.modules.get(owner) in _LAYERS:
            renames[name] = f"base_model.model.{owner}.{lora[1:] + rest if lora else leaf}"
    return renames


def require_equal(
    found: dict[str, Any], merged: Path, kept_tied: bool, narrow: bool = True
) -> None:
    """Raise when the merged model answers differently.

    Args:
        found: by `check_logits`.
        merged: directory of the result.
        kept_tied: as in the merge.
        narrow: the result stores weights in fewer bits than float32 has.

    Raises:
        CheckError: HT154, with the figures.
    """
    if found["equal"]:
        return
    lost = found["max_difference"] > found["adapter_effect"] / 2
    why, fix = "", "leave --check logits out only if you know why they differ"
    if kept_tied:
        why = "--keep-tied gives both embeddings what was trained for one"
        fix = "merge again without --keep-tied"
    elif lost and not narrow:
        why = "most of what the adapter does as PEFT loads it is not in the merged model"
        fix = "pip show peft transformers  # then compare with the versions that trained it"
    elif lost:
        why = "most of what the adapter does is below the rounding of the stored dtype"
        fix = "merge again with --dtype float32"
    raise CheckError(
        "HT154",
        f"the merged model does not answer as the adapter does: logits differ by up to "
        f"{found['max_difference']:.3g}, rounding explains {found['bound']:.3g}",
        where=str(merged),
        detail=(
            f"largest logit {found['max_logit']:.3g}, the adapter's own effect "
            f"{found['adapter_effect']:.3g}, same first token at {found['top1_agreement']:.1%}",
            *([why] if why else []),
            "The merged directory stays; it should not be published like this.",
        ),
        next=fix,
    )
