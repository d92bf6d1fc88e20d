"""merge: weights as they will be published, then the proof that they load and talk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubtools.checkpoint.adapter import PICKLE, open_adapter
from hubtools.checkpoint.identity import published_config
from hubtools.checkpoint.inspect import inspect_checkpoint
from hubtools.checkpoint.merging.merge import ENGINE_VERSION
from hubtools.checkpoint.talk import TALK_VERSION, talk
from hubtools.checkpoint.trainer import STATE
from hubtools.digests import sha256_bytes, weights_digest
from hubtools.errors import Finding
from hubtools.family.manifest import Member
from hubtools.files import write_atomic
from hubtools.hub.diff import same_content
from hubtools.hub.model import LocalFile, RemoteState
from hubtools.progress import labelled
from hubtools.release.context import Release
from hubtools.release.freed import missing
from hubtools.release.ingested import ingest_inputs, is_ingested
from hubtools.release.made_facts import PUBLISHED, made_facts, public_report, training_facts
from hubtools.release.refuse import refuse
from hubtools.release.stages.base import Stage, input_digests, same_files
from hubtools.release.stages.evaluate import Evaluate
from hubtools.release.store import stage_key
from hubtools.release.weights import make_weights, merge_inputs


class Merge(Stage):
    """A weights directory with the sha256 of each file, known while it was written."""

    name = "merge"
    version = 3
    after = ("verify",)

    def waits_for(self, release: Release, member: Member) -> str:
        """The checkpoint, and the base where it is read, when they are not on this machine."""
        if member.checkpoint is None or not member.checkpoint.is_dir():
            return "its checkpoint directory"
        return "the base model's files" if release.lacks_base() else ""

    def inputs(self, release: Release, member: Member) -> Mapping[str, Any]:
        """Every file of the checkpoint, and of the base where it is read."""
        manifest = release.family.manifest.family
        kind, base = manifest.kind, release.base_path()
        checkpoint = _checkpoint(member)
        inputs: dict[str, Any] = {
            "kind": kind,
            "names": [manifest.base.repo, manifest.base.revision],
            "engine": [ENGINE_VERSION, TALK_VERSION],
            "base": input_digests(release, base) if base is not None and kind != "full" else {},
        }
        if is_ingested(checkpoint):
            inputs["ingest"] = ingest_inputs(release, member)
            state = [f for f in checkpoint.glob(STATE) if f.is_file()]
            inputs["checkpoint"] = {f.name: release.digests.sha256(f) for f in state}
        elif kind == "merged":
            inputs["checkpoint"] = _adapter_digests(release, checkpoint)
        else:
            inputs["checkpoint"] = input_digests(release, checkpoint)
        if kind == "merged":
            inputs["options"] = merge_inputs(release)
        return inputs

    def summary(self, outputs: Mapping[str, Any]) -> str:
        """What was done to the weights, and the first words they said."""
        reports = outputs["reports"]
        taken = [f"{reports['ingest']['tensors']} tensors taken in"] if "ingest" in reports else []
        merged = [f"{reports['merge']['changed_tensors']} merged"] if "merge" in reports else []
        done = ", ".join([*taken, *merged]) or "as it is"
        return f"{done}; it loads and talks: {outputs['talk']['text'][:60]!r}"

    def run(self, release: Release, member: Member, key: str) -> Mapping[str, Any]:
        """Merge in a child process (or take the files as they are), then load and talk."""
        kind = release.family.manifest.family.kind
        weights = make_weights(release, member, key)
        said = talk(
            weights.folder,
            base=release.base_path() if kind == "adapter" else None,
            log=release.log(f"talk-{member.id}"),
            progress=labelled(release.progress, f"load {member.id}"),
        )
        refuse([Finding(**finding) for finding in said["findings"]])
        digest = weights_digest(
            {n: e["sha256"] for n, e in weights.files.items() if n.endswith(".safetensors")}
        )
        facts = training_facts(release, member, weights, digest)
        written: dict[str, Any] = {}
        report = public_report(release, member, weights)
        if report is not None:
            written = _written(release, key, report)
            facts += made_facts(report, json.loads(report), member.id, digest)
        return {
            "folder": release.stored(weights.folder),
            "files": _without_paths(release, weights.files, key),
            "made": weights.made,
            "weights": digest,
            "reports": weights.reports,
            "report_file": written,
            "talk": said,
            # An adapter is often kept in another dtype than the weights it is merged into.
            "dtype": said["dtype"]
            if kind == "merged"
            else inspect_checkpoint(weights.folder).dtype,
            "facts": [fact.to_json() for fact in facts],
        }

    def again(self, release: Release, member: Member, outputs: Mapping[str, Any]) -> str:
        """Who needs the weights that were deleted after their release: an evaluation, or a repo."""
        gone = missing(release, outputs)
        if not gone or member not in release.targets:
            return ""
        if _pending_evaluation(release, member):
            return "evaluate needs the deleted weights"
        remote = release.remotes.get(member.repo)
        if remote is not None and not _holds(release, remote, outputs, gone):
            return f"{member.repo} lacks the deleted weights"
        return ""

    def remark(self, release: Release, outputs: Mapping[str, Any]) -> str:
        """That the weights are on the Hub alone."""
        return "published, then deleted" if missing(release, outputs) else ""

    def whole(self, release: Release, outputs: Mapping[str, Any]) -> bool:
        """The files are where they were, with the digests they had."""
        report = outputs["report_file"]
        return same_files(release, outputs["files"] | ({PUBLISHED: report} if report else {}))


def _pending_evaluation(release: Release, member: Member) -> bool:
    stage = Evaluate()
    if stage.skip(release, member) or stage.waits_for(release, member):
        return False
    inputs = stage.inputs(release, member)
    key = stage_key(stage.name, stage.version, stage.record_target(member), inputs)
    record = release.store.get(stage.name, key)
    return record is None or not stage.whole(release, record.outputs)


def _holds(
    release: Release, remote: RemoteState, outputs: Mapping[str, Any], names: tuple[str, ...]
) -> bool:
    """Whether the repo has these files, by the digests that it lists."""
    for name in names:
        entry = outputs["files"][name]
        known = release.freed.entry(entry["source"], entry["sha256"])
        there = remote.files.get(name)
        file = LocalFile(name, release.at(entry["source"]), **(known or {}))
        if there is None or not same_content(file, there):
            return False
    return True


def _checkpoint(member: Member) -> Path:
    assert member.checkpoint is not None
    return member.checkpoint


def _adapter_digests(release: Release, checkpoint: Path) -> dict[str, str]:
    """An adapter's files, wherever in the directory it lies, and its pickle when that is read."""
    adapter = open_adapter(checkpoint, release.scratch)
    files = input_digests(release, checkpoint)
    if adapter.path != checkpoint:
        inside = input_digests(release, adapter.path)
        files |= {f"{adapter.path.name}/{name}": digest for name, digest in inside.items()}
    if adapter.weights.parent != adapter.path:
        files[PICKLE] = release.digests.sha256(adapter.path / PICKLE)
    return files


def _written(release: Release, key: str, report: bytes) -> dict[str, Any]:
    file = release.state / "published" / key[:16] / Path(PUBLISHED).name
    write_atomic(file, report)
    return {"size": len(report), "sha256": sha256_bytes(report), "source": release.stored(file)}


def _without_paths(
    release: Release, files: Mapping[str, Mapping[str, Any]], key: str
) -> dict[str, Mapping[str, Any]]:
    """The same files, with configs that name a local base rewritten for the public."""
    base = release.family.manifest.family.base
    published = dict(files)
    for name in ("config.json", "adapter_config.json"):
        if name not in files:
            continue
        data = release.at(files[name]["source"]).read_bytes()
        new = published_config(name, data, base=base.repo, revision=base.revision or "")
        if new is not None:
            file = release.state / "published" / key[:16] / name
            write_atomic(file, new)
            published[name] = {
                "size": len(new),
                "sha256": sha256_bytes(new),
                "source": release.stored(file),
            }
    return published
