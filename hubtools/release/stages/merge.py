"""merge: weights as they will be published, then the proof that they load and talk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubtools.checkpoint.carry import publishable_files
from hubtools.checkpoint.facts import checkpoint_facts
from hubtools.checkpoint.identity import published_config
from hubtools.checkpoint.inspect import inspect_checkpoint
from hubtools.checkpoint.merging.merge import ENGINE_VERSION, merge
from hubtools.checkpoint.talk import TALK_VERSION, talk
from hubtools.digests import sha256_bytes, weights_digest
from hubtools.errors import Finding
from hubtools.family.manifest import Member
from hubtools.files import write_atomic
from hubtools.progress import labelled
from hubtools.release.context import Release
from hubtools.release.refuse import refuse
from hubtools.release.stages.base import Stage, input_digests, same_files


class Merge(Stage):
    """A weights directory with the sha256 of each file, known while it was written."""

    name = "merge"
    version = 2
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
        return {
            "kind": kind,
            "names": [manifest.base.repo, manifest.base.revision],
            "engine": [ENGINE_VERSION, TALK_VERSION],
            "checkpoint": input_digests(release, _checkpoint(member)),
            "base": input_digests(release, base) if base is not None and kind != "full" else {},
        }

    def summary(self, outputs: Mapping[str, Any]) -> str:
        """What was done to the weights, and the first words they said."""
        done = (
            f"{outputs['report']['changed_tensors']} tensors merged"
            if outputs["report"]
            else "as it is"
        )
        return f"{done}; it loads and talks: {outputs['talk']['text'][:60]!r}"

    def run(self, release: Release, member: Member, key: str) -> Mapping[str, Any]:
        """Merge in a child process (or take the files as they are), then load and talk."""
        kind = release.family.manifest.family.kind
        checkpoint, base = _checkpoint(member), release.base_path()
        report: Mapping[str, Any] = {}
        if kind == "merged":
            assert base is not None
            folder = member.merged.with_name(f"{member.merged.name}-{key[:8]}")
            result = merge(
                checkpoint,
                base,
                folder,
                log=release.log(f"merge-{member.id}"),
                progress=labelled(release.progress, f"merge {member.id}"),
            )
            files, weights, report = result["files"], result["weights"], result["report"]
            for name, entry in files.items():
                release.digests.remember(folder / name, entry["sha256"])
                entry["source"] = release.stored(folder / name)
        else:
            folder = checkpoint
            files = _described(release, publishable_files(checkpoint, kind))
            weights = {n: e["sha256"] for n, e in files.items() if n.endswith(".safetensors")}
        said = talk(
            folder,
            base=base if kind == "adapter" else None,
            log=release.log(f"talk-{member.id}"),
            progress=labelled(release.progress, f"load {member.id}"),
        )
        refuse([Finding(**finding) for finding in said["findings"]])
        digest = weights_digest(weights)
        info = inspect_checkpoint(checkpoint)
        facts = checkpoint_facts(
            info, member=member.id, weights=digest, path=release.relative(checkpoint)
        )
        return {
            "folder": release.stored(folder),
            "files": _without_paths(release, files, key),
            "weights": digest,
            "report": report,
            "talk": said,
            # An adapter is often kept in another dtype than the weights it is merged into.
            "dtype": said["dtype"] if kind == "merged" else info.dtype,
            "facts": [fact.to_json() for fact in facts],
        }

    def whole(self, release: Release, outputs: Mapping[str, Any]) -> bool:
        """The files are where they were, with the digests they had."""
        return same_files(release, outputs["files"])


def _checkpoint(member: Member) -> Path:
    assert member.checkpoint is not None
    return member.checkpoint


def _described(release: Release, files: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "size": path.stat().st_size,
            "sha256": release.digests.sha256(path),
            "source": release.stored(path),
        }
        for name, path in files.items()
    }


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
