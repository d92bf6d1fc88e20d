"""Send the files of a repo first, then commit them in one step.

The client's own `create_commit` is not repeated when an answer is lost. Here a doubtful answer
leads to a look at the history: the commit landed, or nothing happened, or somebody else was there.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hubtools.errors import EnvironmentFailure
from hubtools.hub.explain import AGAIN, status_of
from hubtools.hub.landed import Goal, find_landed
from hubtools.hub.model import CommitResult, LocalFile, RepoType
from hubtools.hub.network import asked_wait, call, passing, raise_explained, translated
from hubtools.hub.remote import read_head
from hubtools.hub.session import Session
from hubtools.progress import Progress, silent

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd

BATCH_BYTES = 64 << 20
BATCH_FILES = 200
IGNORE_NOTHING = "# a .gitignore on the Hub must not thin out a release\n"
_STALE = 412


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """Files whose content the Hub already has, waiting for their commit."""

    repo: str
    repo_type: RepoType
    files: tuple[LocalFile, ...]
    operations: tuple[CommitOperationAdd, ...] = field(repr=False)


def ensure_repo(session: Session, repo: str, repo_type: RepoType = "model") -> bool:
    """Create the repo, private, unless it is there.

    Returns:
        Whether it was created now. An existing repo is left as it is.

    Raises:
        AuthError, EnvironmentFailure: as for `read_remote`.
    """
    from huggingface_hub.errors import HfHubHTTPError

    session.require_token()
    if read_head(session, repo, repo_type) is not None:
        return False

    tries = 0

    def create() -> bool:
        nonlocal tries
        tries += 1
        try:
            session.api.create_repo(repo, repo_type=repo_type, visibility="private")
        except HfHubHTTPError as error:
            if status_of(error) == 409:
                return tries > 1  # our own, when the answer to an earlier try was lost
            raise
        return True

    return call(session, "creating the repo", create, repo=repo)


def preupload(
    session: Session,
    repo: str,
    files: Sequence[LocalFile],
    progress: Progress = silent,
    *,
    repo_type: RepoType = "model",
) -> PreparedCommit:
    """Send the content of `files`; nothing becomes visible until `commit`.

    What the Hub already has is not sent again, so a broken run goes on where it stopped. Progress
    is told in bytes after each file (small ones in batches).

    Raises:
        EnvironmentFailure: HT306 no Xet storage, HT319 connection broke off, HT322 a file changed.
        AuthError: HT303, HT304.
    """
    from huggingface_hub import CommitOperationAdd

    total, done = sum(file.size for file in files), 0
    label = f"upload {repo}"
    operations: list[CommitOperationAdd] = []
    for batch in _batches(files):
        progress(label, done, total, "bytes")
        with translated(session, "sending files", repo=repo):
            adds = []
            for file in batch:
                _unchanged(file)
                add = CommitOperationAdd(file.path, file.source)
                add.upload_info.sha256 = bytes.fromhex(file.sha256)  # known: spares a second read
                adds.append(add)
            session.api.preupload_lfs_files(
                repo,
                adds,
                repo_type=repo_type,
                free_memory=False,
                gitignore_content=IGNORE_NOTHING,
            )
        operations += adds
        done += sum(file.size for file in batch)
    progress(label, done, total, "bytes")
    return PreparedCommit(repo, repo_type, tuple(files), tuple(operations))


def commit(
    session: Session,
    prepared: PreparedCommit,
    *,
    parent: str | None,
    message: str,
    delete: Sequence[str] = (),
    description: str = "",
) -> CommitResult:
    """Make exactly one commit on top of `parent`, whatever happens to the answers.

    Args:
        session: the Hub.
        prepared: what `preupload` returned.
        parent: head of `main` that the plan was made on; None only for a repo without a commit.
        message: first line of the commit message.
        delete: paths to remove in the same commit.
        description: further lines.

    Raises:
        RemoteMovedError: HT301, somebody else committed; nothing was pushed.
        CheckError: HT310 the Hub refuses the content, HT316 the README's metadata.
        EnvironmentFailure: HT307, HT309, HT319 when patience ends.
    """
    goal = Goal(prepared.repo, prepared.repo_type, parent, prepared.files, tuple(delete))
    for wait in session.patience.waits():
        try:
            answer = _create(session, prepared, parent, message, delete, description)
        except Exception as error:
            if not passing(error) and status_of(error) != _STALE:
                raise_explained(session, error, "committing", prepared.repo)
            try:
                landed = find_landed(session, goal)
            except EnvironmentFailure:  # the Hub is away: look again after the wait
                landed = None
            if landed is not None:
                return landed
            if wait is None:
                raise_explained(session, error, "committing", prepared.repo)
            time.sleep(asked_wait(session, error, wait))
        else:
            return _confirmed(session, goal, answer)
    raise AssertionError("waits() ends with None")


def _confirmed(session: Session, goal: Goal, answer: CommitResult) -> CommitResult:
    """The client reports today's head, and no commit, when it finds nothing to change."""
    try:
        return find_landed(session, goal, answer.oid) or answer
    except EnvironmentFailure:  # the Hub did say yes
        return answer


def _create(
    session: Session,
    prepared: PreparedCommit,
    parent: str | None,
    message: str,
    delete: Sequence[str],
    description: str,
) -> CommitResult:
    from huggingface_hub import CommitOperationDelete

    operations: list[Any] = [CommitOperationDelete(path, is_folder=False) for path in delete]
    operations += prepared.operations
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # metadata warnings: preflight shows them
        info = session.api.create_commit(
            prepared.repo,
            operations,
            commit_message=message,
            commit_description=description,
            repo_type=prepared.repo_type,
            parent_commit=parent,
        )
    return CommitResult(info.oid, str(info.commit_url), already=False)


def _unchanged(file: LocalFile) -> None:
    size = file.source.stat().st_size
    if size != file.size:
        raise EnvironmentFailure(
            "HT322",
            f"{file.path} changed after it was sealed: {file.size} bytes then, {size} now",
            where=str(file.source),
            detail=("Nothing was committed to this repo.",),
            next=AGAIN,
        )


def _batches(files: Sequence[LocalFile]) -> Iterator[list[LocalFile]]:
    batch: list[LocalFile] = []
    size = 0
    for file in files:
        if batch and (size + file.size > BATCH_BYTES or len(batch) == BATCH_FILES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch
