"""Take in what a sharded trainer saved: a new directory that appears whole or not at all.

This is the parent's side: it finds the weights by name, and lets a child process with torch do the
work in a `Workplace`, where a run that was killed goes on with the file it was writing.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hubtools.checkpoint.ingesting.find import Source, find_source
from hubtools.checkpoint.ingesting.lora import alpha_of, alpha_unknown, saved_alpha, written_config
from hubtools.checkpoint.ingesting.side import config_folder, side_files
from hubtools.checkpoint.shards import INDEX, SINGLE, read_weights
from hubtools.checkpoint.stamps import stamps_of
from hubtools.checkpoint.workplace import Workplace
from hubtools.children import ONE_THREAD, run_child
from hubtools.digests import sha256_file, sha256_json
from hubtools.errors import CheckError, UsageError
from hubtools.progress import Progress, silent

VERSION = 1
DTYPES = ("bfloat16", "float16", "float32", "float64")
ALPHA_LIMIT = 1e9


@dataclass(frozen=True, slots=True)
class IngestJob:
    """What an ingest would read and make.

    Args:
        kind: what comes out: a whole model, or the adapter of a LoRA run.
        step: by directory name or trainer state; a claim, None when neither says.
        files: every file whose bytes the result depends on; optimizer states are not among them.
    """

    run: Path
    source: Source
    kind: Literal["full", "adapter"]
    step: int | None
    files: tuple[Path, ...]


def plan_ingest(
    run: Path,
    *,
    base: Path | None = None,
    dtype: str | None = None,
    lora_alpha: float | None = None,
) -> IngestJob:
    """Find out by names and small files what `ingest` would do; nothing is written.

    Args:
        run: as for `ingest`.
        base: as for `ingest`.
        dtype: as for `ingest`.
        lora_alpha: as for `ingest`.

    Raises:
        CheckError: HT165 to HT167, HT169, HT172, HT173, see `ingest`.
        UsageError: HT413 an unknown dtype.
    """
    if dtype is not None and dtype not in DTYPES:
        raise UsageError("HT413", f"no dtype {dtype!r}", next=f"use one of {', '.join(DTYPES)}")
    if lora_alpha is not None and not 0 < lora_alpha < ALPHA_LIMIT:
        raise CheckError(
            "HT172",
            f"{lora_alpha:g} is no lora_alpha: above 0 and below {ALPHA_LIMIT:g}",
            where=str(run),
            detail=("Nothing was written.",),
            next=f"hubtools ingest {shlex.quote(str(run))} -o OUT --lora-alpha ALPHA",
        )
    source = find_source(run)
    if source.kind == "lora":
        saved_alpha(source, lora_alpha)
    elif source.adapted and lora_alpha is None:
        raise alpha_unknown(source.files[0], source.folder, source.adapted)
    written = written_config(source)
    if written is not None and source.kind != "lora":
        alpha_of(written, source.folder, lora_alpha)
    adapter = source.kind == "lora" or lora_alpha is not None or written is not None
    side = side_files(source, base, "adapter" if adapter else "full")
    if not adapter:
        config_folder(run, source, base)
    kind: Literal["full", "adapter"] = "adapter" if adapter else "full"
    own = [written] if written is not None and source.kind != "lora" else []
    small = [*side.values(), *own]
    return IngestJob(run, source, kind, source.step, (*source.files, *small))


def check_ingest(
    run: Path,
    *,
    base: Path | None = None,
    dtype: str | None = None,
    lora_alpha: float | None = None,
    log: Path,
) -> dict[str, Any]:
    """Raise everything that `ingest` would raise before its first byte; nothing is written.

    A child process opens the weights, which takes some seconds.

    Args:
        run: as for `ingest`.
        base: as for `ingest`.
        dtype: as for `ingest`.
        lora_alpha: as for `ingest`.
        log: where the child process tells its story.

    Returns:
        the `report` of `ingest` without what only writing can tell.

    Raises:
        CheckError: as `ingest`.
    """
    job = plan_ingest(run, base=base, dtype=dtype, lora_alpha=lora_alpha)
    checked = _child(job, base, dtype, lora_alpha, log, silent, {"check_only": True})
    report: dict[str, Any] = checked["report"]
    return report


def ingest(
    run: Path,
    out: Path,
    *,
    base: Path | None = None,
    dtype: str | None = None,
    lora_alpha: float | None = None,
    log: Path,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Write the checkpoint in `run` to `out` as transformers would have saved it.

    Args:
        run: a step directory (verl `global_step_N` or its `actor`, DCP, accelerate, a pickle), or
            a run that holds one.
        out: new directory; one that this very job already made is checked and used again.
        base: the model it was trained from: for a configuration, tokenizer or licence the run does
            not have, and, with weights, for names and shapes without loading transformers.
        dtype: one of `DTYPES`; needed when the configuration declares another
            one than is stored. Tensors that the model keeps in float32 stay so.
        lora_alpha: of a LoRA run whose trainer did not save it.
        log: where the child process tells its story.
        progress: bytes written so far.

    Returns:
        `files` {name: {sha256, size}} of everything in `out`, `weights` {name: sha256} and `report`
        (kind, source, world_size, step, tensors, dtypes in and out, rounded_elements …), the same
        for the same inputs.

    Raises:
        CheckError: HT117 a value is not finite, HT165 no weights, HT166 several steps, HT167 ranks
            missing or mixed, HT168 a damaged or hostile file, HT169 a foreign way of sharding,
            HT170 the dtype must be chosen, HT171 wrong names or shapes, HT172 a LoRA run without
            alpha, HT173 an unknown model, HT174 tied tensors that differ.
        UsageError: HT120 when `out` holds something else, HT413 an unknown dtype.
        EnvironmentFailure: HT118 a source changed, HT901/HT902 disk full, HT903 in use, HT904 the
            child died.
    """
    job = plan_ingest(run, base=base, dtype=dtype, lora_alpha=lora_alpha)
    identity = _identity(job, base, dtype, lora_alpha)
    place = Workplace(out, "ingest")
    with place.held():
        known = place.finished(identity)
        if known is not None:
            return known
        more = {
            "out": str(place.files),
            "work": str(place.folder),
            "name": out.name,
            "identity": identity,
        }
        result = _child(job, base, dtype, lora_alpha, log, progress, more)
        place.publish(identity, result)
    return result


def _child(
    job: IngestJob,
    base: Path | None,
    dtype: str | None,
    lora_alpha: float | None,
    log: Path,
    progress: Progress,
    more: dict[str, Any],
) -> dict[str, Any]:
    fields = {
        "run": str(job.run.absolute()),
        "base": str(base.absolute()) if base is not None else None,
        "dtype": dtype,
        "lora_alpha": lora_alpha,
        "check_only": False,
        **more,
    }
    try:
        return run_child(
            "hubtools.checkpoint.ingesting.child",
            fields,
            log=log,
            what=f"ingest {job.run}",
            progress=progress,
            env=ONE_THREAD,
        )
    finally:
        if "work" in more:
            (Path(more["work"]) / "part").unlink(missing_ok=True)


def _identity(job: IngestJob, base: Path | None, dtype: str | None, alpha: float | None) -> str:
    """One name for inputs and options; weights count by place, inode, size and time."""
    weights = list(job.source.files)
    if base is not None and any((base / name).is_file() for name in (SINGLE, INDEX)):
        weights += [header.path for header in read_weights(base).headers.values()]
    small = [file for file in job.files if file not in job.source.files]
    return sha256_json({
        "version": VERSION,
        "options": {"dtype": dtype, "lora_alpha": alpha},
        "weights": stamps_of(file.resolve() for file in weights),
        "small": [[file.name, sha256_file(file)] for file in small],
    })  # fmt: skip
