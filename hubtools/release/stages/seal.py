"""seal: everything that goes into the commit, fixed by digest, and scanned for secrets first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubtools import __version__
from hubtools.audit.record import release_record
from hubtools.digests import canonical_json, sha256_bytes, sha256_json
from hubtools.errors import CheckError, Finding
from hubtools.evaluation.records import SAMPLES
from hubtools.family.manifest import Member
from hubtools.files import write_atomic
from hubtools.hub.localfiles import describe
from hubtools.hub.model import RELEASE_RECORD, LocalFile, RepoPlan, files_record
from hubtools.hub.rules import plan_findings
from hubtools.provenance.secrets import scan_bytes
from hubtools.release.cells import published_run
from hubtools.release.context import Release
from hubtools.release.evidence import gather
from hubtools.release.made_facts import PUBLISHED as WEIGHTS
from hubtools.release.refuse import refuse
from hubtools.release.stages.base import Stage, same_files
from hubtools.release.stages.verify import PUBLISHED as PROVENANCE
from hubtools.sizes import size_words


class Seal(Stage):
    """The list of files of the commit, each with its digests, and the release record."""

    name = "seal"
    version = 2
    after = ("render",)

    def inputs(self, release: Release, member: Member) -> Mapping[str, Any]:
        """Every file of the commit by digest, and all else that the record holds."""
        files = {path: sha256 for path, (_, sha256) in contents(release, member).items()}
        table = release.family.manifest.family
        return {
            "files": files,
            "tool": __version__,
            "evidence": sha256_json(gather(release, member).to_json()),
            "named": [member.repo, member.id, table.kind, table.base.repo, table.base.revision],
        }

    def summary(self, outputs: Mapping[str, Any]) -> str:
        """How much the commit holds."""
        size = sum(file["size"] for file in outputs["files"])
        return f"{len(outputs['files'])} files, {size_words(size)}"

    def run(self, release: Release, member: Member, key: str) -> Mapping[str, Any]:
        """Scan, describe, write the record.

        Raises:
            CheckError: HT501 when a file looks as if it held a secret; HT312, HT313, HT314 when
                the Hub would refuse a path, a size or the number of files.
        """
        found = contents(release, member)
        _refuse_secrets({path: source for path, (source, _) in found.items()})
        files = [
            _described(release, path, source, sha256)
            for path, (source, sha256) in sorted(found.items())
        ]
        table = release.family.manifest.family
        refuse(plan_findings(RepoPlan(member.repo, "model", tuple(files), table.visibility)))
        evidence = gather(release, member)
        shown = {**evidence.to_json(), "files": {}}  # the record lists them itself
        record = release_record(
            tool=f"hubtools {__version__}",
            repo=member.repo,
            member={
                "family": table.id,
                "id": member.id,
                "kind": table.kind,
                "weights": evidence.weights.get(member.id, ""),
            },
            base={"repo": table.base.repo, "revision": table.base.revision or ""},
            files=files_record(files),
            evidence=shown,
        )
        file = release.state / "sealed" / key[:16] / "release.json"
        write_atomic(file, record)
        files.append(describe(RELEASE_RECORD, file))
        names = ("path", "size", "sha256", "git_sha1")
        return {
            "files": [
                {**{name: getattr(f, name) for name in names}, "source": release.stored(f.source)}
                for f in files
            ]
        }

    def whole(self, release: Release, outputs: Mapping[str, Any]) -> bool:
        """Every file of the commit is where it was, with its digest."""
        return same_files(release, {entry["path"]: entry for entry in outputs["files"]})


def sealed_files(release: Release, outputs: Mapping[str, Any]) -> tuple[LocalFile, ...]:
    """The files of a sealed commit."""
    return tuple(
        LocalFile(**{**entry, "source": release.at(entry["source"])}) for entry in outputs["files"]
    )


def contents(release: Release, member: Member) -> dict[str, tuple[Path, str]]:
    """Path in the repo → (file on disk, sha256) of all but the release record."""
    merged = release.done[("merge", member.id)]
    card = release.done[("render", member.id)]
    written = {**merged["files"], **card["files"]}
    files = {
        name: (release.at(entry["source"]), entry["sha256"]) for name, entry in written.items()
    }
    if merged["report_file"]:
        entry = merged["report_file"]
        files[WEIGHTS] = (release.at(entry["source"]), entry["sha256"])
    for target in (release.base_member, member):
        evaluated = release.done.get(("evaluate", target.id), {"runs": (), "repeats": ()})
        for run in evaluated["runs"]:
            record = release.state / run["path"]
            name = published_run(target, run["name"])
            files[name] = (record, run["sha256"])
            samples = record.with_name(SAMPLES)
            files[str(Path(name).with_name(SAMPLES))] = (samples, run["samples"])
        for entry in evaluated["repeats"]:
            files[entry["name"]] = (release.state / entry["path"], entry["sha256"])
    verdict = release.done.get(("verify", member.id))
    if verdict is not None:
        data = canonical_json(verdict["verdict"])
        file = release.state / "sealed" / sha256_bytes(data)[:16] / "provenance.json"
        if not file.is_file() or file.read_bytes() != data:
            write_atomic(file, data)
        files[PROVENANCE] = (file, sha256_bytes(data))
    return files


def _described(release: Release, path: str, source: Path, sha256: str) -> LocalFile:
    known = None if source.exists() else release.freed.entry(release.stored(source), sha256)
    if known is not None:
        return LocalFile(path, source, **known)
    return describe(path, source, sha256=sha256, cache=release.digests)


def _refuse_secrets(files: Mapping[str, Path]) -> None:
    findings: list[Finding] = []
    for path, source in sorted(files.items()):
        if source.suffix != ".safetensors":
            findings += scan_bytes(path, source.read_bytes())
    errors = [finding for finding in findings if finding.level == "error"]
    if errors:
        raise CheckError(
            "HT501",
            f"a file to be published seems to hold a secret: {errors[0].message}",
            where=errors[0].where,
            detail=[f"{finding.where}: {finding.message}" for finding in errors[1:]],
            next="remove it from the file (and revoke it if it was real), then run this again",
        )
