"""Local files against a remote tree, by digest and without a download.

A file that no release of ours wrote belongs to somebody: it is kept, and never deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hubtools.hub.model import README, RELEASE_RECORD, FileDiff, LocalFile, RemoteFile, RemoteState


def diff_files(
    remote: RemoteState, local: Iterable[LocalFile], *, keep: Iterable[str] = ()
) -> FileDiff:
    """What a commit must add, change and delete so that the remote holds `local`.

    Args:
        remote: the repo as listed; one that does not exist has no files.
        local: every file of the release.
        keep: paths that are not deleted even if our last release wrote them.

    Raises:
        ValueError: two local files go to one path.
    """
    wanted: dict[str, LocalFile] = {}
    for file in local:
        if file.path in wanted:
            raise ValueError(f"{file.path} is there twice")
        wanted[file.path] = file
    add, change, same = [], [], []
    for path, file in sorted(wanted.items()):
        there = remote.files.get(path)
        if there is None:
            add.append(file)
        elif same_content(file, there):
            same.append(path)
        else:
            change.append(file)
    record = recorded_files(remote)
    kept = set(keep)
    gone = (p for p in sorted(record) if p not in wanted and p not in kept)
    return FileDiff(
        add=tuple(add),
        change=tuple(change),
        delete=tuple(p for p in gone if _as_recorded(remote.files.get(p), record[p])),
        same=tuple(same),
        overwrites=tuple(
            f.path
            for f in change
            if not (record and f.path == RELEASE_RECORD)  # a record cannot hold its own digest
            and not _as_recorded(remote.files[f.path], record.get(f.path))
        ),
    )


def same_content(local: LocalFile, remote: RemoteFile) -> bool:
    """Equal by the digest that the Hub lists: sha256 for large files, git blob id for the rest."""
    if remote.sha256 is not None:
        return local.sha256 == remote.sha256
    return local.git_sha1 != "" and local.git_sha1 == remote.oid


def recorded_files(remote: RemoteState) -> Mapping[str, Mapping[str, Any]]:
    """The files that our last release wrote, as its record on the remote says; {} without one."""
    files = (remote.release or {}).get("files")
    if not isinstance(files, Mapping):
        return {}
    return {p: entry for p, entry in files.items() if isinstance(entry, Mapping)}


def ours(remote: RemoteState) -> bool:
    """Whether the remote README may be replaced: there is none, or our last release wrote it."""
    there = remote.files.get(README)
    return there is None or _as_recorded(there, recorded_files(remote).get(README))


def _as_recorded(there: RemoteFile | None, entry: Mapping[str, Any] | None) -> bool:
    if there is None or entry is None:
        return False
    if there.sha256 is not None:
        return entry.get("sha256") == there.sha256
    return entry.get("oid") == there.oid
