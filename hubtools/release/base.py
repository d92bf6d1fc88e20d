"""The base model: have its files here, and find out whether they are what the manifest says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from hubtools.checkpoint.base import cached_base, resolve_base
from hubtools.errors import Finding, HubtoolsError
from hubtools.hub.model import RemoteFile
from hubtools.hub.remote import list_files
from hubtools.hub.session import is_loopback
from hubtools.release.context import BASE, Release
from hubtools.release.ingested import is_ingested
from hubtools.release.stages.base import input_digests
from hubtools.release.store import Record, stage_key


def fetch_base(release: Release) -> None:
    """Have the base's files here: the manifest's own copy, or a snapshot of the pinned commit.

    Raises:
        HubtoolsError: HT121, HT122, HT125 when the Hub does not have it, or not for this token.
    """
    table = release.family.manifest.family.base
    if release.needs_base() and table.path is None and table.revision is not None:
        release.note(f"· base {table.repo}@{table.revision[:7]} from the Hub (or its cache)")
        release.base = resolve_base(table.repo, table.revision)
        release.base_files = _known_from_hub()


def find_base(release: Release) -> None:
    """Take a base that an earlier run fetched from the cache; nothing is downloaded."""
    table = release.family.manifest.family.base
    if not release.needs_base() or table.path or table.revision is None or release.base:
        return
    release.base = cached_base(table.repo, table.revision)
    if release.base is not None:
        release.base_files = _known_from_hub()


def _known_from_hub() -> Literal["hub", "cache"]:
    """A cache that a rehearsal's Hub filled proves nothing about the real one."""
    from huggingface_hub import constants

    return "cache" if is_loopback(constants.ENDPOINT) else "hub"


def compare_base(release: Release) -> list[Finding]:
    """Hold a local copy against the Hub's files at the declared commit, where that Hub has them.

    Sets `release.base_files`: `hub` when every weight file is equal, `local` when this Hub cannot
    tell, or is on this machine.

    Returns:
        HT526 when the copy is another model than the manifest says.
    """
    table, folder = release.family.manifest.family.base, release.base_path()
    if release.base_files or folder is None or not folder.is_dir() or not _reads_base(release):
        return []
    release.base_files = "local"
    if table.revision is None:
        return []
    here = input_digests(release, folder)
    inputs = {"files": here, "repo": table.repo, "revision": table.revision}
    key = stage_key("base", 1, BASE, inputs)
    if release.store.get("base", key) is not None:  # a commit does not change
        release.base_files = "hub"
        return []
    if release.session is None:
        return []
    try:
        there = list_files(release.session, table.repo, "model", table.revision)
    except HubtoolsError as error:
        release.note(f"· base {table.repo}: the local copy was not compared with the Hub ({error})")
        return []
    wrong = _differing(here, there)
    if not wrong:
        if not release.session.loopback:  # a rehearsal's Hub proves nothing about the real one
            release.base_files = "hub"
            release.store.put(Record("base", 1, BASE, key, inputs, {"equal": True}))
        return []
    return [
        Finding(
            "HT526",
            "error",
            f"the local base is not {table.repo}@{table.revision[:7]}: {', '.join(wrong)} differ",
            where=str(folder),
            next=f"correct path or revision at {release.family.where('family', 'base')}",
        )
    ]


def _reads_base(release: Release) -> bool:
    """Whether any of the base's files gets into the members: its licence gets into every run."""
    runs = (member.checkpoint for member in release.family.members)
    return release.needs_base() or any(run is not None and is_ingested(run) for run in runs)


def _differing(here: Mapping[str, str], there: Mapping[str, RemoteFile]) -> list[str]:
    weights = [name for name in {**here, **there} if name.endswith(".safetensors")]
    return sorted(
        name
        for name in weights
        if name not in there or name not in here or there[name].sha256 != here[name]
    )
