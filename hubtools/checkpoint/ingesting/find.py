"""Where in a run directory the weights are, by names alone; only small JSON is opened."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from hubtools.checkpoint import adapter as adapters
from hubtools.checkpoint.ingesting.beside import (
    LORA,
    PICKLES,
    Evidence,
    adapter_beside,
    base_alone,
    holds_adapter,
    places_of,
)
from hubtools.checkpoint.ingesting.dcp import METADATA
from hubtools.checkpoint.ingesting.pieces import damaged
from hubtools.checkpoint.ingesting.ranks import CONFIG, rank_files
from hubtools.checkpoint.ingesting.torchfile import unsupported
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.kinds import TrainerShards, named_step, trainer_shards
from hubtools.checkpoint.shards import INDEX, SINGLE, read_weights
from hubtools.checkpoint.trainer import read_trainer_state
from hubtools.errors import CheckError

Kind = Literal["lora", "safetensors", "dcp", "verl-fsdp", "pickle"]
_PICKLE_INDEX = "pytorch_model.bin.index.json"
_ZERO = "zero_to_fp32.py"


@dataclass(frozen=True, slots=True)
class Source:
    """The weights of one step.

    Args:
        folder: where the weight files lie.
        files: all that is read of them.
        world_size: ranks that wrote them; 1 for a whole checkpoint.
        step: by the directory's name or the trainer's state; None when neither says.
        side: directory with config.json and tokenizer; None when there is none in the run.
        adapted: what shows that these shards hold an adapter, when that is known already.
    """

    kind: Kind
    folder: Path
    files: tuple[Path, ...]
    world_size: int
    step: int | None
    side: Path | None
    adapted: str = ""


def find_source(run: Path) -> Source:
    """The weights in `run`: a step directory, its `actor`, or a run that holds one step.

    A LoRA run's adapter comes before everything else, because what lies beside it is the base
    alone. Then whole safetensors before sharded states before rank files before pickles.

    Raises:
        CheckError: HT165 nothing to take in, HT166 several steps, HT167 rank files are missing,
            HT169 DeepSpeed or Megatron shards.
    """
    found = _step(run)
    if found is not None:
        return _trained(run, found)
    steps = list(_steps(run))
    whole = [(step, found) for step, _, found in steps if isinstance(found, Source)]
    newest = whole[-1][0] if whole else -1
    # Trainers delete the weights of old steps; what came after a whole one was interrupted.
    broken = [
        (folder, found.message if isinstance(found, CheckError) else "no weights")
        for step, folder, found in steps
        if isinstance(found, CheckError) or (found is None and whole and step > newest)
    ]
    if len(whole) == 1 and not broken:
        return _trained(run, whole[0][1])
    if not whole and len(broken) == 1:
        raise next(found for _, _, found in steps if isinstance(found, CheckError))
    if whole or broken:
        raise _several(run, [f for _, f, found in steps if isinstance(found, Source)], broken)
    raise _nothing(run)


def is_base_alone(folder: Path) -> bool:
    """Whether an adapter was trained around a model, or may have been: `find_source` refuses it."""
    try:
        return adapter_beside(folder) is not None
    except CheckError:
        return True


def _trained(run: Path, found: Source) -> Source:
    """`found`, or the shards in `run` that hold the adapter when `found` is only its base.

    Raises:
        CheckError: HT172 when the adapter lies elsewhere.
    """
    if found.kind not in ("safetensors", "pickle"):
        return found
    if found.kind == "pickle" and holds_adapter(found.files, found.folder):
        return found  # the adapter will be taken out of it
    evidence = adapter_beside(found.folder)
    if evidence is None:
        return found
    if evidence.shards is not None and evidence.place.is_relative_to(run.absolute()):
        own = _shards(run, evidence.shards)
        return replace(own, adapted=evidence.what)
    raise base_alone(found.folder, evidence, _adapter_of(found.folder, evidence))


def _step(run: Path) -> Source | None:
    if all((run / name).is_file() for name in (adapters.CONFIG, adapters.WEIGHTS)):
        if run.name != LORA:
            return None  # an adapter already, whatever lies beside it
    inside = [folder / LORA for folder in places_of(run)]
    for lora in (*inside, *((run,) if run.name == LORA else ())):
        if (lora / adapters.CONFIG).is_file():
            parts = (lora / adapters.CONFIG, lora / adapters.WEIGHTS)
            return _made("lora", lora, parts, _side(run, lora.parent))
    for folder in places_of(run):
        if (folder / SINGLE).is_file() or (folder / INDEX).is_file():
            headers = read_weights(folder).headers.values()
            return _made("safetensors", folder, tuple(h.path for h in headers), _side(run, folder))
    shards = trainer_shards(run)
    if shards is not None:
        return _shards(run, shards)
    for folder in places_of(run):
        pickles = _pickles(folder)
        if pickles:
            return _made("pickle", folder, pickles, _side(run, folder))
    if run.is_dir() and (run / CONFIG).is_file():
        rank_files(run)  # it says what is missing
    return None


def _shards(run: Path, shards: TrainerShards) -> Source:
    side = _side(run, shards.folder)
    if shards.kind == "dcp":
        files = (shards.folder / METADATA, *(shards.folder / name for name in shards.files))
        return _made("dcp", shards.folder, files, side, shards.world_size)
    if shards.kind == "verl-fsdp":
        ranks = tuple(rank_files(shards.folder))
        return _made("verl-fsdp", shards.folder, ranks, side, len(ranks))
    raise _foreign(run, shards.folder, shards.kind)


def _made(
    kind: Kind, folder: Path, files: tuple[Path, ...], side: Path | None, world_size: int = 1
) -> Source:
    above = (folder, *list(folder.absolute().parents)[:3])
    step = next((step for place in above if (step := named_step(place.name)) is not None), None)
    if step is None:
        states = (read_trainer_state(place) for place in above[:2])
        step = next((state.global_step for state in states if state is not None), None)
    return Source(kind, folder, files, world_size, step, side)


def _side(run: Path, folder: Path) -> Path | None:
    """The nearest directory with a config.json."""
    near = (folder / "huggingface", folder, folder.parent, folder.parent / "huggingface", run)
    return next((place for place in near if (place / "config.json").is_file()), None)


def _pickles(folder: Path) -> tuple[Path, ...]:
    if (folder / _PICKLE_INDEX).is_file():
        placed = read_object(folder / _PICKLE_INDEX).get("weight_map")
        names = sorted({str(n) for n in placed.values()}) if isinstance(placed, dict) else []
        files = tuple(folder / name for name in names if Path(name).name == name)
        missing = [file.name for file in files if not file.is_file()]
        if missing or not files:
            raise CheckError(
                "HT105",
                f"the weight index names {', '.join(missing) or 'no files'}, not here",
                where=str(folder / _PICKLE_INDEX),
                detail=("Nothing was written.",),
                next="copy the directory again from where it was trained",
            )
        return files
    return next(((folder / name,) for name in PICKLES if (folder / name).is_file()), ())


def _steps(run: Path) -> Iterator[tuple[int, Path, Source | CheckError | None]]:
    """(step, its directory, what is there), the last step last."""
    if not run.is_dir():
        return
    named = ((named_step(folder.name), folder) for folder in run.iterdir() if folder.is_dir())
    for step, folder in sorted((step, folder) for step, folder in named if step is not None):
        found: Source | CheckError | None
        try:
            found = _step(folder)
            if found is not None and found.kind == "dcp" and not found.files[0].is_file():
                found = damaged(found.files[0], "it is missing: the save was interrupted")
        except CheckError as error:
            found = error
        yield step, folder, found


def _several(run: Path, whole: list[Path], broken: list[tuple[Path, str]]) -> CheckError:
    listed = [folder.name for folder in whole]
    listed += [f"{folder.name} (not whole: {why})" for folder, why in broken]
    named = whole[-1] if whole else broken[-1][0]
    return CheckError(
        "HT166",
        f"a run of {len(listed)} steps: which one?",
        where=str(run),
        detail=(f"It holds {', '.join(listed)}.", "Nothing was written."),
        next=f"hubtools ingest {shlex.quote(str(named))} -o OUT",
    )


def _adapter_of(folder: Path, evidence: Evidence) -> str:
    """The command that takes the adapter instead of its base."""
    place = evidence.place if evidence.place.is_dir() else evidence.place.parent
    if evidence.place.name == adapters.CONFIG:
        return f"hubtools inspect {shlex.quote(str(place))}  # release or merge this adapter"
    if place.name == LORA and not (place / adapters.CONFIG).is_file():
        return "copy the whole step directory again from where it was trained"
    command = f"hubtools ingest {shlex.quote(str(place))} -o OUT --lora-alpha ALPHA"
    return f"{command}  # the adapter is there"


def _foreign(run: Path, folder: Path, kind: str) -> CheckError:
    if kind == "deepspeed":
        holder = next((place for place in (run, folder.parent) if (place / _ZERO).is_file()), None)
        place = shlex.quote(str(holder or folder.parent))
        script = f"{place}/{_ZERO}" if holder else "-m deepspeed.utils.zero_to_fp32"
        out = f"{place}/consolidated"
        what = "DeepSpeed ZeRO shards hold flattened groups of parameters"
        tag = f" -t {shlex.quote(folder.name)}" if folder.name.startswith("global_step") else ""
        fix = (
            f"python {script} {place} {out}{tag} --safe_serialization && cp {place}/*.json {out}"
            f" && hubtools ingest {out} -o OUT"
        )
        return unsupported(folder, what, fix)
    what = "Megatron shards name their tensors in another way than transformers"
    return unsupported(
        folder, what, "export the step with Megatron Bridge, then ingest that folder"
    )


def _nothing(run: Path) -> CheckError:
    if (run / adapters.CONFIG).is_file():
        return CheckError(
            "HT165",
            "this is an adapter already",
            where=str(run),
            detail=("Nothing was written.",),
            next=f"hubtools merge {shlex.quote(str(run))} --base BASE -o OUT, or release it with"
            ' kind = "adapter"',
        )
    what = "not a directory" if not run.is_dir() else "no weights here that a trainer saved"
    return CheckError(
        "HT165",
        what,
        where=str(run),
        detail=(
            "Looked for safetensors, .metadata (DCP), model_world_size_W_rank_R.pt (verl) and"
            " pytorch_model.bin, here, in actor/ and in step directories.",
            "Nothing was written.",
        ),
        next=f"ls {shlex.quote(str(run))}  # then name the step directory",
    )
