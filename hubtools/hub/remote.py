"""Read one repo: its head, its tree with digests, its README and our last release record.

Nothing large is downloaded: the tree listing carries the digests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote

from hubtools.hub.explain import status_of
from hubtools.hub.model import (
    README,
    RELEASE_RECORD,
    RemoteFile,
    RemoteState,
    RepoType,
)
from hubtools.hub.network import call, request
from hubtools.hub.session import Session

_SMALL = 32 << 20  # no README or record is larger


def read_remote(session: Session, repo: str, repo_type: RepoType = "model") -> RemoteState:
    """The repo as it is now, all parts at one commit.

    Raises:
        AuthError: HT302, HT303, HT304.
        EnvironmentFailure: HT307, HT309, HT319. A repo that is not there is no error.
    """
    info = _info(session, repo, repo_type)
    if info is None:
        return RemoteState(repo, repo_type, exists=False)
    private, head = bool(info.private), cast(str | None, info.sha)
    if head is None:
        return RemoteState(repo, repo_type, exists=True, private=private)
    files = list_files(session, repo, repo_type, head)
    readme = _read(session, repo, repo_type, head, files.get(README))
    record = _read(session, repo, repo_type, head, files.get(RELEASE_RECORD))
    return RemoteState(
        repo,
        repo_type,
        exists=True,
        private=private,
        head=head,
        files=files,
        release=_parsed(record),
        readme=readme,
    )


def list_files(
    session: Session, repo: str, repo_type: RepoType, revision: str
) -> dict[str, RemoteFile]:
    """Every file at a commit: path → file with the Hub's digest of it.

    Raises:
        HubtoolsError: as for `read_remote`; HT308 when the repo is not there.
    """
    from huggingface_hub.hf_api import RepoFile

    def listing() -> dict[str, RemoteFile]:
        entries = session.api.list_repo_tree(
            repo, recursive=True, revision=revision, repo_type=repo_type
        )
        return {
            e.path: RemoteFile(e.path, e.size, e.blob_id, e.lfs.sha256 if e.lfs else None)
            for e in entries
            if isinstance(e, RepoFile)
        }

    return call(session, "reading the file list", listing, repo=repo)


def read_small(session: Session, remote: RemoteState, path: str) -> bytes | None:
    """The content of one small file at the commit that was listed; None when it is not there.

    Raises:
        HubtoolsError: as for `read_remote`.
    """
    if remote.head is None:
        return None
    return _read(session, remote.repo, remote.repo_type, remote.head, remote.files.get(path))


def read_head(session: Session, repo: str, repo_type: RepoType) -> str | None:
    """Commit id of `main` now; None when the repo is not there."""
    info = _info(session, repo, repo_type)
    return None if info is None else cast(str | None, info.sha)


def _info(session: Session, repo: str, repo_type: RepoType) -> Any:
    from huggingface_hub.errors import RepositoryNotFoundError

    def info() -> Any:
        try:
            return session.api.repo_info(repo, repo_type=repo_type)
        except RepositoryNotFoundError as error:
            if status_of(error) == 404:
                return None
            raise

    return call(session, "reading the repo", info, repo=repo)


def _read(
    session: Session, repo: str, repo_type: RepoType, revision: str, file: RemoteFile | None
) -> bytes | None:
    from huggingface_hub.utils._http import hf_raise_for_status

    if file is None or file.size > _SMALL:
        return None
    prefix = "/datasets" if repo_type == "dataset" else ""
    path = f"{prefix}/{repo}/resolve/{revision}/{quote(file.path)}"

    def content() -> bytes:
        response = request(session, "GET", path)
        hf_raise_for_status(response)
        return bytes(response.content)

    return call(session, f"reading {file.path}", content, repo=repo)


def _parsed(record: bytes | None) -> Mapping[str, Any] | None:
    """The record as an object; one that does not parse was not written by us."""
    if record is None:
        return None
    try:
        value = json.loads(record)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
