"""What is wrong with a checkpoint, beyond files that cannot be read."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from hubtools.checkpoint import adapter as adapters
from hubtools.checkpoint.adapter import AdapterConfig, read_adapter_config
from hubtools.checkpoint.inspecting.found import Found
from hubtools.checkpoint.inspecting.steps import Step, step_findings
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.kinds import TrainerShards
from hubtools.errors import CheckError, Finding


def faults(found: Found, code: Sequence[str], steps: Sequence[Step]) -> Iterator[Finding]:
    """HT101, HT177, HT178, HT182, HT183 and HT184, where they apply.

    Args:
        found: the directory.
        code: Python that loading it runs.
        steps: what says which step it is.
    """
    place = str(found.root)
    if found.adapter is not None:
        yield from _without_weights(found)
    if code:
        message = f"loading it runs code of its own (trust_remote_code): {', '.join(code)}"
        fix = "read that code before you load or publish it"
        yield Finding("HT177", "warning", message, where=place, next=fix)
    yield from step_findings(steps, found.root)
    for config in _adapters(found):
        if config.peft_type == "LORA" and config.fields.get("lora_alpha") == 0:
            yield Finding(
                "HT183",
                "warning",
                "the trainer wrote lora_alpha = 0, with which the adapter does nothing",
                where=f"{config.path}:/lora_alpha",
                next=f"hubtools ingest {shlex.quote(place)} --lora-alpha N -o OUT"
                "  # N as in training",
            )
    if found.shards is not None and (why := _incomplete(found.shards)):
        message, fix = f"not a whole step: {why}", "copy the whole step from the training run again"
        yield Finding("HT184", "error", message, where=str(found.shards.folder), next=fix)
    if not found.complete:
        message = f"more than {len(found.files)} files: the rest was not looked at"
        yield Finding("HT182", "info", message, where=place)


def _without_weights(found: Found) -> Iterator[Finding]:
    if adapters.WEIGHTS not in found.files and "adapter_model.bin" not in found.files:
        message = f"an adapter without weights: {adapters.WEIGHTS} is missing"
        fix = "copy it from the training run"
        yield Finding("HT101", "error", message, where=str(found.root), next=fix)


def _adapters(found: Found) -> list[AdapterConfig]:
    """The adapter itself, and one beside a trainer's shards; one that cannot be read says so."""
    configs = [found.adapter] if found.adapter is not None else []
    for one in found.inside:
        if one.kind == "adapter" and found.shards is not None:
            try:
                configs.append(read_adapter_config(found.root / one.name))
            except CheckError:
                continue  # `hubtools inspect` of that folder, or its ingest, says why
    return configs


def _incomplete(shards: TrainerShards) -> str:
    if shards.missing:
        ranks = ", ".join(map(str, shards.missing[:8])) + ("…" if shards.lacking > 8 else "")
        return f"ranks {ranks} of {shards.world_size} are missing"
    stated = _stated_size(shards)
    if stated not in (None, shards.world_size):
        return f"fsdp_config.json says {stated} ranks, the file names {shards.world_size}"
    if shards.kind == "dcp" and not (shards.folder / ".metadata").is_file():
        return ".metadata is missing: nobody knows which tensor lies where"
    if shards.kind == "dcp" and not shards.files:
        return ".metadata is there, and none of the files it describes"
    return ""


def _stated_size(shards: TrainerShards) -> object:
    """What verl wrote down; old steps have no such file."""
    file = shards.folder / "fsdp_config.json"
    if shards.kind != "verl-fsdp" or not file.is_file():
        return None
    try:
        return read_object(file).get("world_size")
    except CheckError:
        return "unreadable numbers of"
