"""Runs whose trainer saved shards of its own: what taking them in needs, known before it starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubtools.checkpoint.adapter import CONFIG, read_adapter_config
from hubtools.checkpoint.shards import INDEX, SINGLE
from hubtools.errors import CheckError, Finding, HubtoolsError
from hubtools.family.manifest import Family, Member
from hubtools.release.context import Release
from hubtools.release.refuse import as_finding
from hubtools.release.store import Record, stage_key

if TYPE_CHECKING:
    from hubtools.checkpoint.ingesting.ingest import IngestJob

CHECKED = "ingest"
"""Name of the records that remember a run which was looked into and found whole."""


def is_ingested(checkpoint: Path) -> bool:
    """Whether this is a run to take in, rather than a model or adapter that is published as it is.

    Names decide, and of verl's `lora_adapter/` whether its alpha was saved. What is neither, or
    several steps at once, is told by whoever reads it; so is a whole model that lies in a step
    directory as the base of an adapter.
    """
    from hubtools.checkpoint.ingesting.beside import LORA
    from hubtools.checkpoint.ingesting.find import find_source, is_base_alone

    whole = (checkpoint / SINGLE, checkpoint / INDEX)
    if (checkpoint / CONFIG).is_file():
        return checkpoint.name == LORA and _lacks_alpha(checkpoint)
    if any(file.is_file() for file in whole):
        return is_base_alone(checkpoint)
    try:
        find_source(checkpoint)
    except CheckError as error:
        return error.id != "HT165"
    return True


def _lacks_alpha(adapter: Path) -> bool:
    try:
        return read_adapter_config(adapter).alpha == 0
    except CheckError:
        return False  # whoever reads it tells


def ingest_job(release: Release, member: Member) -> IngestJob:
    """What `ingest` would read and make, by names and small files.

    Raises:
        CheckError, UsageError: as `plan_ingest`.
    """
    from hubtools.checkpoint.ingesting.ingest import plan_ingest

    assert member.checkpoint is not None
    table = release.family.manifest.ingest
    return plan_ingest(
        member.checkpoint,
        base=ingest_base(release),
        dtype=table.dtype,
        lora_alpha=table.lora_alpha,
    )


def ingest_base(release: Release) -> Path | None:
    """The base's files, where they are on this machine."""
    base = release.base_path()
    return base if base is not None and base.is_dir() else None


def ingest_inputs(release: Release, member: Member) -> dict[str, Any]:
    """Everything an ingest depends on: the options, and each file it reads by digest."""
    from hubtools.checkpoint.ingesting.ingest import VERSION

    job, table = ingest_job(release, member), release.family.manifest.ingest
    return {
        "version": VERSION,
        "dtype": table.dtype,
        "lora_alpha": table.lora_alpha,
        "files": {_named(release, job, file): release.digests.sha256(file) for file in job.files},
    }


def ingest_findings(release: Release, member: Member) -> list[Finding]:
    """What would stop the ingest, found without writing; a run that was found whole is remembered.

    Returns:
        HT165 to HT174; HT515 when the run holds another kind of checkpoint than the manifest says.
    """
    from hubtools.checkpoint.ingesting.ingest import check_ingest

    try:
        job = ingest_job(release, member)
        wanted = "full" if release.family.manifest.family.kind == "full" else "adapter"
        if job.kind != wanted:
            return [other_kind(release.family, member, job.source.folder, job.kind)]
        inputs = ingest_inputs(release, member)
        key = stage_key(CHECKED, 1, member.id, inputs)
        if release.store.get(CHECKED, key) is None:
            table = release.family.manifest.ingest
            check_ingest(
                job.run,
                base=ingest_base(release),
                dtype=table.dtype,
                lora_alpha=table.lora_alpha,
                log=release.log(f"ingest-{member.id}"),
            )
            release.store.put(Record(CHECKED, 1, member.id, key, inputs, {"whole": True}))
    except HubtoolsError as error:
        return [as_finding(error, member.id)]
    return []


def other_kind(family: Family, member: Member, place: Path, found: str) -> Finding:
    """HT515: the checkpoint is not of the kind that the manifest declares."""
    kinds = {"full": 'kind = "full"', "adapter": 'kind = "adapter" or "merged"'}
    return Finding(
        "HT515",
        "error",
        f'kind = "{family.manifest.family.kind}", but the checkpoint is'
        f" {'an adapter' if found == 'adapter' else 'a whole model'}",
        where=str(place),
        next=f"set {kinds[found]} at {family.where('family', 'kind')}",
        member=member.id,
    )


def _named(release: Release, job: IngestJob, file: Path) -> str:
    """A file's name from the run or the base: a project that is moved keeps its keys."""
    base = ingest_base(release)
    if base is not None and file.is_relative_to(base) and not file.is_relative_to(job.run):
        return f"base/{file.relative_to(base)}"
    return os.path.relpath(file, job.run)
