"""LoRA runs of a sharded trainer: the adapter comes out, never the base that lies around it.

verl writes `lora_adapter/` with `lora_alpha` 0 and beside it a model without the adapter
(verl-project/verl#4553): taken for the fine-tune, that model is the base, untrained.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubtools.checkpoint.adapter import CONFIG, WEIGHTS
from hubtools.checkpoint.headers import read_header
from hubtools.checkpoint.ingesting.beside import INNER
from hubtools.checkpoint.ingesting.find import Source
from hubtools.checkpoint.ingesting.keys import is_adapter_key, unwrapped
from hubtools.checkpoint.ingesting.pieces import FLOATS, Piece, SourceTensor, covered, row_major
from hubtools.checkpoint.ingesting.plan import IngestPlan, Target, Tensors
from hubtools.checkpoint.inspect import DTYPES
from hubtools.checkpoint.jsonfile import finite, read_object
from hubtools.checkpoint.merging.config_edits import edited
from hubtools.errors import CheckError

_FACTOR = re.compile(r"(?P<module>.+)\.lora_(?P<side>[AB])(?:\.[^.]+)?\.weight")


def saved_alpha(source: Source, given: float | None) -> float:
    """The alpha of `lora_adapter/`: the one in its configuration, else the given one.

    Raises:
        CheckError: HT172 it is 0 or missing and none was given, or the two differ; HT106.
    """
    return alpha_of(source.folder / CONFIG, source.folder.parent, given)


def written_config(source: Source) -> Path | None:
    """The adapter_config.json that a trainer left beside the shards that hold the factors."""
    near = [source.folder / CONFIG]
    if source.folder.name in INNER:  # users put merged models below an adapter
        near.append(source.folder.parent / CONFIG)
    return next((file for file in near if file.is_file()), None)


def alpha_of(file: Path, step: Path, given: float | None) -> float:
    """The alpha in an adapter_config.json, else the given one; errors as of `saved_alpha`."""
    known = finite(read_object(file).get("lora_alpha")) or 0.0
    if known <= 0 and (given is None or given <= 0):
        raise alpha_unknown(file, step, f"{CONFIG} says lora_alpha {known:g}")
    if known > 0 and given is not None and given != known:
        raise _refused(file, f"{CONFIG} says lora_alpha {known:g}, --lora-alpha {given:g}", "")
    return known if known > 0 else given or 0.0


def alpha_unknown(place: Path, step: Path, what: str) -> CheckError:
    """The trainer did not save alpha; without it the adapter's strength is unknown."""
    return CheckError(
        "HT172",
        f"the adapter's strength is unknown: {what}",
        where=str(place),
        detail=(
            "verl does not save lora_alpha; it is in the training configuration"
            " (actor_rollout_ref.model.lora_alpha).",
            "The model beside the adapter is the base without it and is not taken for the"
            " fine-tune. Nothing was written.",
        ),
        next=f"hubtools ingest {shlex.quote(str(step))} -o OUT --lora-alpha ALPHA",
    )


def plan_saved(source: Source, dtype: str | None) -> IngestPlan:
    """The adapter of `lora_adapter/`, tensor by tensor.

    Raises:
        CheckError: HT104 the file is not whole, HT172 it is no LoRA adapter.
    """
    header = read_header(source.folder / WEIGHTS)
    tensors = {}
    for entry in header.tensors:
        zero = (0,) * len(entry.shape)
        piece = Piece(header.path, entry.begin, entry.shape, zero, row_major(entry.shape))
        tensors[entry.name] = covered(entry.name, entry.dtype, entry.shape, [piece])
    if not any(".lora_" in name for name in tensors):
        raise _refused(header.path, "no tensor in it is a LoRA factor", "")
    return _plan(tensors, dtype, header.path)


def plan_inside(source: Source, tensors: Tensors, dtype: str | None) -> IngestPlan:
    """The adapter whose factors lie among the model's own tensors.

    Raises:
        CheckError: HT172 they are not plain factors, or two have one name.
    """
    found: dict[str, SourceTensor] = {}
    for saved in filter(is_adapter_key, tensors.shapes):
        name = _model_name(saved)
        match = _FACTOR.fullmatch(name)
        if match is None:
            what = f"{saved} is no plain LoRA factor, and there is no {CONFIG} that explains it"
            raise _refused(source.folder, what, "save the adapter with PEFT (save_pretrained)")
        name = f"base_model.model.{match['module']}.lora_{match['side']}.weight"
        if name in found:
            raise _refused(source.folder, f"two tensors become {name}", "")
        found[name] = tensors.tensor(saved)
    if not found:
        what = "its layers are wrapped for an adapter, which is not there: this is the base alone"
        raise _refused(source.folder, what, "")
    return _plan(found, dtype, source.folder)


def config_inside(plan: IngestPlan, alpha: float, model: Mapping[str, Any]) -> dict[str, Any]:
    """An adapter_config.json for factors whose trainer wrote none.

    Raises:
        CheckError: HT172 when the ranks differ: then the trainer's patterns are unknown.
    """
    targets = plan.targets()
    ranks = {t.shape[0] for t in targets if t.name.endswith(".lora_A.weight")}
    place = targets[0].source.pieces[0].path
    if len(ranks) != 1:
        what = f"its ranks differ ({', '.join(map(str, sorted(ranks)))})"
        raise _refused(place, what, "save the adapter with PEFT (save_pretrained)")
    modules = sorted({m["module"] for t in targets if (m := _FACTOR.fullmatch(t.name))})
    return {
        "base_model_name_or_path": str(model.get("_name_or_path") or "") or None,
        "bias": "none",
        "inference_mode": True,
        "lora_alpha": _number(alpha),
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": ranks.pop(),
        "target_modules": [name.removeprefix("base_model.model.") for name in modules],
        "task_type": "CAUSAL_LM",
    }


def with_alpha(config: Path, alpha: float) -> bytes:
    """An adapter_config.json with alpha filled in, every other byte as it was."""
    data = config.read_bytes()
    if read_object(config).get("lora_alpha") == alpha:
        return data
    return edited(data, {"lora_alpha": _number(alpha)})


def config_bytes(config: Mapping[str, Any]) -> bytes:
    """JSON as PEFT writes it."""
    return json.dumps(config, indent=2, sort_keys=True).encode() + b"\n"


def _model_name(saved: str) -> str:
    """Without wrappers; a state's own name (`model.`, `app.model.`) ends where PEFT's begins."""
    return unwrapped(saved.partition("base_model.model.")[2] or saved)


def _plan(tensors: Mapping[str, SourceTensor], dtype: str | None, place: Path) -> IngestPlan:
    names = {torch: name for name, torch in DTYPES.items()}
    odd = next((tensor for tensor in tensors.values() if tensor.dtype not in FLOATS), None)
    if odd is not None:
        raise _refused(place, f"{odd.name} is {odd.dtype}: no trained weight is stored so", "")
    factors = [match for name in tensors if (match := _FACTOR.fullmatch(name))]
    sides = {(match["module"], match["side"]) for match in factors}
    alone = sorted(m for m, side in sides if (m, "B" if side == "A" else "A") not in sides)
    empty = sorted(name for name, tensor in tensors.items() if not tensor.elements)
    if alone or empty:
        what = f"{alone[0]} has one factor of two" if alone else f"{empty[0]} is empty"
        raise _refused(place, what, "")
    targets = tuple(
        Target(
            name,
            names[dtype] if dtype is not None and tensor.dtype in FLOATS else tensor.dtype,
            tensor.shape,
            tensor,
            0,
        )
        for name, tensor in tensors.items()
    )
    return IngestPlan({WEIGHTS: targets}, dtype or "", (), "pairs of LoRA factors")


def _number(value: float) -> float | int:
    return int(value) if value == int(value) else value


def _refused(place: Path, what: str, fix: str) -> CheckError:
    return CheckError(
        "HT172",
        f"cannot take this LoRA run in: {what}",
        where=str(place),
        detail=("Nothing was written.",),
        next=fix or "copy the whole step directory again from where it was trained",
    )
