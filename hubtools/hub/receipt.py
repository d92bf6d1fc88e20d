"""After the commit: list the remote again, compare every digest, and only then show the repo."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from hubtools.errors import CheckError
from hubtools.hub.diff import same_content
from hubtools.hub.explain import AGAIN
from hubtools.hub.model import LocalFile, RepoType, Visibility
from hubtools.hub.network import call
from hubtools.hub.remote import list_files, read_head
from hubtools.hub.session import Session


def attest(
    session: Session,
    repo: str,
    files: Iterable[LocalFile],
    *,
    repo_type: RepoType = "model",
    revision: str | None = None,
) -> dict[str, Any]:
    """List the remote again and compare it with what was to be published.

    Args:
        session: the Hub.
        repo: `owner/name`.
        repo_type: model or dataset.
        files: every file of the release, sent or not.
        revision: the commit to look at; None for the head of `main`.

    Returns:
        The receipt: `{repo, repo_type, endpoint, head, files{path{size, sha256, oid}}, others[]}`;
        `oid` is what the Hub lists, `others` are files that are not of this release.

    Raises:
        CheckError: HT318 when a file is missing or differs, each named.
    """
    head = revision or read_head(session, repo, repo_type)
    there = {} if head is None else list_files(session, repo, repo_type, head)
    wanted = {file.path: file for file in files}
    wrong = [
        f"{path}: {'differs' if path in there else 'is missing'}"
        for path, file in sorted(wanted.items())
        if path not in there or not same_content(file, there[path])
    ]
    if wrong:
        more = [f"and {len(wrong) - 10} more"] if len(wrong) > 10 else []
        raise CheckError(
            "HT318",
            f"the remote does not hold what was released: {repo}@{(head or 'none')[:7]}",
            where=repo,
            detail=(*wrong[:10], *more),
            next=f"hubtools plan (shows the difference), then {AGAIN}",
        )
    return {
        "repo": repo,
        "repo_type": repo_type,
        "endpoint": session.endpoint,
        "head": head,
        "files": {
            path: {"size": file.size, "sha256": file.sha256, "oid": there[path].oid}
            for path, file in sorted(wanted.items())
        },
        "others": sorted(there.keys() - wanted.keys()),
    }


def set_visibility(
    session: Session, repo: str, visibility: Visibility, *, repo_type: RepoType = "model"
) -> bool:
    """Give the repo its declared visibility.

    Returns:
        Whether that was a change.

    Raises:
        AuthError, EnvironmentFailure: as for `read_remote`; HT308 when the repo is not there.
        CheckError: HT318 when the Hub said yes and the repo is as it was.
    """
    doing = "setting the visibility"

    def as_declared() -> bool:
        info = session.api.repo_info(repo, repo_type=repo_type)
        return bool(info.private) == (visibility == "private")

    if call(session, doing, as_declared, repo=repo):
        return False
    call(
        session,
        doing,
        lambda: session.api.update_repo_settings(repo, repo_type=repo_type, visibility=visibility),
        repo=repo,
    )
    for wait in session.patience.waits():
        if call(session, doing, as_declared, repo=repo):
            return True
        time.sleep(wait or 0)
    raise CheckError(
        "HT318",
        f"{repo} is not {visibility}, although the Hub said so",
        where=repo,
        detail=("Its files are there, with the digests they should have.",),
        next=AGAIN,
    )
