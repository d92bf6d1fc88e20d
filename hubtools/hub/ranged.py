"""Parts of a repo's files: a listing at one commit, and ranges of bytes; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from urllib.parse import quote

from hubtools.errors import EnvironmentFailure
from hubtools.hub.model import RemoteFile
from hubtools.hub.network import call
from hubtools.hub.remote import list_files
from hubtools.hub.session import Session


@dataclass(slots=True)
class RepoReader:
    """One model repo at one commit.

    Args:
        commit: what the revision was when it was opened.
        files: path → file, the whole tree.
        requests: how many parts were read so far.
        received: bytes in them.
    """

    session: Session
    repo: str
    commit: str
    files: Mapping[str, RemoteFile]
    requests: int = 0
    received: int = 0
    _lock: Lock = field(default_factory=Lock, repr=False)

    def read(self, path: str, begin: int, end: int) -> bytes:
        """Bytes `begin` to `end` (not included) of a file, fewer where it ends before.

        Not a byte more is taken from the connection, whatever a server sends.

        Raises:
            HubtoolsError: as `call`.
        """
        data = call(
            self.session,
            f"reading a part of {path}",
            lambda: self._range(path, begin, end),
            repo=self.repo,
        )
        with self._lock:
            self.requests += 1
            self.received += len(data)
        return data

    def _range(self, path: str, begin: int, end: int) -> bytes:
        from huggingface_hub import get_session
        from huggingface_hub.utils._headers import build_hf_headers
        from huggingface_hub.utils._http import hf_raise_for_status

        session = self.session
        headers = build_hf_headers(token=session.token or False, library_name="hubtools")
        headers |= {"Range": f"bytes={begin}-{end - 1}", "Accept-Encoding": "identity"}
        url = f"{session.endpoint}/{self.repo}/resolve/{self.commit}/{quote(path)}"
        with get_session().stream("GET", url, headers=headers, follow_redirects=True) as response:
            if response.status_code == 416:  # begins after the end of the file
                return b""
            if response.status_code != 206:
                if response.is_error:
                    response.read()
                hf_raise_for_status(response)
                if begin:
                    raise self._no_ranges(path)
            return _at_most(response, end - begin)

    def _no_ranges(self, path: str) -> EnvironmentFailure:
        return EnvironmentFailure(
            "HT182",
            "this Hub sends whole files only: their headers cannot be read alone",
            where=f"{self.repo}@{self.commit[:7]}/{path}",
            detail=("Nothing was downloaded.",),
            next=f"hf download {self.repo} --revision {self.commit}, then inspect that directory",
        )


def open_repo(session: Session, repo: str, revision: str | None = None) -> RepoReader:
    """A model repo at a branch, tag or commit; `main` by default.

    Raises:
        HubtoolsError: as `call`; HT308 when there is no such repo or revision.
    """
    from huggingface_hub.errors import (
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    def head() -> str:
        try:
            return str(session.api.repo_info(repo, repo_type="model", revision=revision).sha)
        except RevisionNotFoundError as error:
            raise EnvironmentFailure(
                "HT308",
                f"{repo} has no revision {revision!r}",
                where=session.endpoint,
                next=f"hf models info {repo} --expand sha  # or name no revision",
            ) from error
        except GatedRepoError:
            raise
        except RepositoryNotFoundError as error:  # without a token the Hub answers 401, not 404
            raise _no_repo(session, repo) from error

    commit = call(session, "reading the repo", head, repo=repo)
    return RepoReader(session, repo, commit, list_files(session, repo, "model", commit))


def _no_repo(session: Session, repo: str) -> EnvironmentFailure:
    seen = "that this token may see" if session.token else "that is public, and there is no token"
    command = "hf auth whoami" if session.token else "hf auth login"
    return EnvironmentFailure(
        "HT308",
        f"the Hub has no model repo {repo} {seen}",
        where=session.endpoint,
        detail=("Nothing was downloaded.",),
        next=f"correct the name; if the repo is private: {command}",
    )


def _at_most(response: Any, count: int) -> bytes:
    pieces = bytearray()
    for piece in response.iter_bytes(64 << 10):
        pieces += piece
        if len(pieces) >= count:
            break
    return bytes(pieces[:count])
