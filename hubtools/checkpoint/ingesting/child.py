"""The child process that ingests: torch is imported here, and killed with it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hubtools.checkpoint.adapter import CONFIG
from hubtools.checkpoint.ingesting import lora
from hubtools.checkpoint.ingesting.beside import adapter_beside, base_alone
from hubtools.checkpoint.ingesting.contents import contents_digest
from hubtools.checkpoint.ingesting.find import Source, find_source
from hubtools.checkpoint.ingesting.keys import is_adapted
from hubtools.checkpoint.ingesting.plan import IngestPlan, open_tensors, plan_model
from hubtools.checkpoint.ingesting.side import config_folder, config_with_dtype, side_files
from hubtools.checkpoint.ingesting.write import Writer, dtypes
from hubtools.checkpoint.journal import Journal
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.shards import INDEX
from hubtools.checkpoint.stamps import stamps_of
from hubtools.checkpoint.workplace import JOURNALS, keep_only
from hubtools.children import child_main, no_garbage
from hubtools.digests import sha256_bytes
from hubtools.errors import CheckError, EnvironmentFailure
from hubtools.files import disk_error, ensure_space, sync_directory, write_atomic
from hubtools.progress import Progress

_MARGIN = 64 << 20


def work(job: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Do the job that `ingest.ingest` describes; its result is that function's result."""
    _require_torch()
    run, base = Path(job["run"]), Path(job["base"]) if job["base"] else None
    source = find_source(run)
    with no_garbage():
        plan, small, kind = _planned(run, source, base, job["dtype"], job["lora_alpha"])
    report = _report(run, source, plan, kind)
    if job["check_only"]:
        return {"report": report}
    out, place = Path(job["out"]), Path(job["work"])
    before = stamps_of(source.files)
    journal = Journal(place / JOURNALS["ingest"], job["identity"])
    known = {name: journal.kept(out, name) for name in journal.names}
    kept = {name: file for name, file in known.items() if file is not None}
    keep_only(out, kept)
    need = plan.bytes - sum(file["size"] for file in kept.values())
    ensure_space(place, max(0, need) + _MARGIN, f"the ingested model {job['name']}")
    files = dict(kept)
    done = sum(file["size"] for file in kept.values())
    for name, targets in plan.files.items():
        if name in kept:
            continue
        writer = Writer(f"ingest {job['name']}", plan.bytes, done, progress)
        part = place / "part"
        part.unlink(missing_ok=True)
        files[name] = {**writer.write(part, targets), "changed": writer.changed()}
        try:
            part.rename(out / name)
            sync_directory(out)
        except OSError as error:
            raise disk_error(error, out / name) from error
        done += files[name]["size"]
        journal.add(name, files[name])
    if stamps_of(source.files) != before:
        raise EnvironmentFailure(
            "HT118",
            "the run changed while it was read",
            where=str(source.folder),
            detail=("What was written is not used.",),
            next="wait until nothing writes there any more, then run the same command again",
        )
    changed = sum(file.pop("changed") for file in files.values())
    weights = {name: str(file["sha256"]) for name, file in files.items()}
    for name, data in small.items():
        write_atomic(out / name, data)
        files[name] = {"sha256": sha256_bytes(data), "size": len(data)}
    sync_directory(out)
    return {
        "files": dict(sorted(files.items())),
        "weights": dict(sorted(weights.items())),
        "report": {**report, "rounded_elements": changed},
    }


def _require_torch() -> None:
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise EnvironmentFailure(
            "HT123",
            f"{' and '.join(missing)} are needed to read what a trainer saved",
            detail=("Nothing was written.",),
            next="pip install 'hf-hubtools[merge]'",
        )


def _planned(
    run: Path, source: Source, base: Path | None, dtype: str | None, alpha: float | None
) -> tuple[IngestPlan, dict[str, bytes], str]:
    """The plan, the small files by name, and what comes out: `full` or `adapter`."""
    if source.kind == "lora":
        known = lora.saved_alpha(source, alpha)
        plan = lora.plan_saved(source, dtype)
        config = lora.with_alpha(source.folder / CONFIG, known)
        return plan, {**_read(side_files(source, base, "adapter")), CONFIG: config}, "adapter"
    tensors = open_tensors(source)
    inside = next(filter(is_adapted, tensors.shapes), None)
    if inside is not None:
        written = lora.written_config(source)
        if written is not None:
            alpha = lora.alpha_of(written, source.folder, alpha)
        if alpha is None or alpha <= 0:
            raise lora.alpha_unknown(
                source.files[0], source.folder, f"{inside} belongs to an adapted model"
            )
        plan = lora.plan_inside(source, tensors, dtype)
        folder = source.side or base
        model = read_object(folder / "config.json") if folder is not None else {}
        data = (
            lora.with_alpha(written, alpha)
            if written is not None
            else lora.config_bytes(lora.config_inside(plan, alpha, model))
        )
        return plan, {**_read(side_files(source, base, "adapter")), CONFIG: data}, "adapter"
    evidence = adapter_beside(source.folder)
    if evidence is not None:
        raise base_alone(source.folder, evidence, f"ls -lR {shlex.quote(str(run))}")
    if alpha is not None:
        raise CheckError(
            "HT172",
            "--lora-alpha was given, but this is no LoRA run",
            where=str(source.folder),
            detail=("Nothing was written.",),
            next="run the same command without --lora-alpha",
        )
    folder = config_folder(run, source, base)
    plan = plan_model(run, source, tensors, folder, base, dtype)
    small = _read(side_files(source, base, "full"))
    small["config.json"] = config_with_dtype(folder / "config.json", plan.dtype)
    if len(plan.files) > 1:
        small[INDEX] = json.dumps(plan.index(), indent=2, sort_keys=True).encode() + b"\n"
    return plan, small, "full"


def _read(files: Mapping[str, Path]) -> dict[str, bytes]:
    return {name: file.read_bytes() for name, file in files.items()}


def _report(run: Path, source: Source, plan: IngestPlan, kind: str) -> dict[str, Any]:
    targets = plan.targets()
    words = dtypes(targets)
    return {
        "kind": kind,
        "source": source.kind,
        "world_size": source.world_size,
        "step": source.step,
        "tensors": len(targets),
        "elements": sum(target.elements for target in targets),
        "bytes": plan.bytes,
        "dtypes_in": words["in"],
        "dtypes_out": words["out"],
        "dropped": list(plan.dropped),
        "checked_against": plan.checked,
        "sources": {
            file.relative_to(run).as_posix() if file.is_relative_to(run) else file.name: {
                "size": file.stat().st_size,
                "contents": contents_digest(file),
            }
            for file in source.files
        },
    }


if __name__ == "__main__":
    child_main(work)
