"""Where in a run directory the weights are, by names alone; only small JSON is opened."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hubtools.checkpoint import adapter as adapters
from hubtools.checkpoint.ingesting.dcp import METADATA
from hubtools.checkpoint.ingesting.ranks import CONFIG, rank_files
from hubtools.checkpoint.ingesting.torchfile import unsupported
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.kinds import named_step, trainer_shards
from hubtools.checkpoint.shards import INDEX, SINGLE, read_weights
from hubtools.checkpoint.trainer import read_trainer_state
from hubtools.errors import CheckError

Kind = Literal["lora", "safetensors", "dcp", "verl-fsdp", "pickle"]
LORA = "lora_adapter"
_PICKLES = (
    "pytorch_model.bin", "pytorch_model_fsdp.bin", "consolidated.pth", "consolidated.00.pth",
    "model.pt",
)  # fmt: skip
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
    """

    kind: Kind
    folder: Path
    files: tuple[Path, ...]
    world_size: int
    step: int | None
    side: Path | None


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
        return found
    steps = [(step, folder) for step, folder in _steps(run) if _step(folder) is not None]
    if len(steps) == 1:
        return _source_of(steps[0][1])
    if steps:
        names = ", ".join(folder.name for _, folder in steps)
        raise CheckError(
            "HT166",
            f"a run of {len(steps)} steps: which one?",
            where=str(run),
            detail=(f"It holds {names}.", "Nothing was written."),
            next=f"hubtools ingest {shlex.quote(str(steps[-1][1]))} -o OUT",
        )
    raise _nothing(run)


def _source_of(step: Path) -> Source:
    found = _step(step)
    assert found is not None
    return found


def _step(run: Path) -> Source | None:
    inside = [folder / LORA for folder in _places(run)]
    for lora in (*inside, *((run,) if run.name == LORA else ())):
        if (lora / adapters.CONFIG).is_file():
            parts = (lora / adapters.CONFIG, lora / adapters.WEIGHTS)
            return _made("lora", lora, parts, _side(run, lora.parent))
    for folder in _places(run):
        if (folder / SINGLE).is_file() or (folder / INDEX).is_file():
            headers = read_weights(folder).headers.values()
            return _made("safetensors", folder, tuple(h.path for h in headers), _side(run, folder))
    shards = trainer_shards(run)
    if shards is not None and shards.kind == "dcp":
        files = (shards.folder / METADATA, *(shards.folder / name for name in shards.files))
        side = _side(run, shards.folder)
        return _made("dcp", shards.folder, files, side, shards.world_size)
    if shards is not None and shards.kind == "verl-fsdp":
        ranks = tuple(rank_files(shards.folder))
        return _made("verl-fsdp", shards.folder, ranks, _side(run, shards.folder), len(ranks))
    if shards is not None:
        raise _foreign(run, shards.folder, shards.kind)
    for folder in _places(run):
        pickles = _pickles(folder)
        if pickles:
            return _made("pickle", folder, pickles, _side(run, folder))
    if run.is_dir() and (run / CONFIG).is_file():
        rank_files(run)  # it says what is missing
    return None


def _made(
    kind: Kind, folder: Path, files: tuple[Path, ...], side: Path | None, world_size: int = 1
) -> Source:
    above = (folder, *list(folder.absolute().parents)[:3])
    step = next((step for place in above if (step := named_step(place.name)) is not None), None)
    if step is None:
        states = (read_trainer_state(place) for place in above[:2])
        step = next((state.global_step for state in states if state is not None), None)
    return Source(kind, folder, files, world_size, step, side)


def _places(run: Path) -> list[Path]:
    """Directories of one step that may hold a whole checkpoint, or an adapter."""
    inner = [run, run / "actor"]
    named = ("huggingface", "hf_model", "distributed_checkpoint", "pytorch_model_fsdp_0")
    folders = [*inner, *(folder / name for folder in inner for name in named)]
    return [folder for folder in folders if folder.is_dir()]


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
    return next(((folder / name,) for name in _PICKLES if (folder / name).is_file()), ())


def _steps(run: Path) -> Iterator[tuple[int, Path]]:
    if run.is_dir():
        named = ((named_step(folder.name), folder) for folder in run.iterdir() if folder.is_dir())
        yield from sorted((step, folder) for step, folder in named if step is not None)


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
