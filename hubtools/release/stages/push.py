"""push: blobs of every repo first, then each repo in one commit on the head that was planned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hubtools.digests import sha256_bytes
from hubtools.errors import AuthError, CheckError, EnvironmentFailure, RemoteMovedError
from hubtools.family.manifest import Member
from hubtools.files import write_json
from hubtools.hub.diff import diff_files
from hubtools.hub.model import README, CommitResult, FileDiff, LocalFile
from hubtools.hub.preflight import check_readme
from hubtools.hub.push import PreparedCommit, commit, ensure_repo, preupload
from hubtools.hub.remote import read_remote
from hubtools.release.context import Release
from hubtools.release.refuse import refuse
from hubtools.release.stages.seal import sealed_files


@dataclass(frozen=True, slots=True)
class Prepared:
    """A repo whose blobs are on the Hub and whose commit is not yet made."""

    member: Member
    parent: str | None
    diff: FileDiff
    commit: PreparedCommit


def local_files(release: Release, member: Member) -> tuple[LocalFile, ...]:
    """What the member's repo is to hold."""
    return sealed_files(release, release.done[("seal", member.id)])


def prepare(release: Release, member: Member) -> Prepared | None:
    """Create the repo (private) if need be and send its blobs; None when the remote is equal.

    Nothing of this is visible to anyone but the owner.

    Raises:
        CheckError: HT316, the Hub refuses the card's metadata; nothing was sent.
        EnvironmentFailure: HT322, a file is not what was sealed; nothing was sent.
    """
    session = release.session
    assert session is not None
    remote = release.remotes[member.repo]
    files = local_files(release, member)
    diff = diff_files(remote, files)
    _as_sealed(release, member, files, diff)
    for file in diff.send:
        if file.path == README:  # refused metadata would fail the commit, after the upload
            text = file.source.read_text(encoding="utf-8")
            refuse(check_readme(session, text, where=member.repo))
    if remote.exists and diff.empty:
        return None
    if not remote.exists:
        # Written before the repo exists: a crash in between must not leave it private for ever.
        write_json(visibility_marker(release, member), {"hub": release.hub, "repo": member.repo})
        _create(release, member)
        release.journal.write("created", member.id, repo=member.repo)
        remote = read_remote(session, member.repo)
        release.remotes[member.repo] = remote
        diff = diff_files(remote, files)
    prepared = preupload(session, member.repo, diff.send, release.progress)
    release.journal.write("uploaded", member.id, repo=member.repo, files=len(diff.send))
    return Prepared(member, remote.head, diff, prepared)


def _as_sealed(
    release: Release, member: Member, files: tuple[LocalFile, ...], diff: FileDiff
) -> None:
    """Between the seal and here lie a question and the user's own hook.

    Weights that were deleted once the Hub had them need not be there.
    """
    for file in files:
        there = file.source.is_file()
        freed = release.freed.entry(release.stored(file.source), file.sha256)
        if not there and freed is not None and file not in diff.send:
            continue
        if not there or release.digests.sha256(file.source) != file.sha256:
            raise EnvironmentFailure(
                "HT322",
                f"{file.path} {'changed' if there else 'went away'} after it was sealed",
                where=str(file.source),
                detail=(f"Nothing of {member.repo} was sent.",),
                next="run the same command again; if a before_push hook did it, correct the hook",
            )


def _create(release: Release, member: Member) -> None:
    """Create the repo, private.

    Raises:
        RemoteMovedError: HT301, somebody else made it since the plan; it is left alone.
        AuthError, CheckError: the Hub refuses.
    """
    assert release.session is not None
    marker = visibility_marker(release, member)
    try:
        if ensure_repo(release.session, member.repo):
            return
    except (AuthError, CheckError):
        marker.unlink(missing_ok=True)  # nothing was made; its visibility is nobody's promise
        raise
    marker.unlink(missing_ok=True)
    raise RemoteMovedError(
        "HT301",
        f"remote moved since the plan: {member.repo} was made by somebody else",
        where=member.repo,
        detail=("Nothing was pushed to this repo.",),
        next="hubtools plan (shows what is there), then run the same command again",
    )


def publish(release: Release, prepared: Prepared) -> CommitResult:
    """Make the one commit, on the head that the plan was made on.

    Raises:
        RemoteMovedError: HT301.
    """
    assert release.session is not None
    member = prepared.member
    result = commit(
        release.session,
        prepared.commit,
        parent=prepared.parent,
        message=f"Release {release.family.manifest.family.id} {member.id}",
        delete=prepared.diff.delete,
    )
    release.journal.write("committed", member.id, repo=member.repo, commit=result.oid)
    return result


def visibility_marker(release: Release, member: Member) -> Path:
    """The file that says: this repo was created by us and has not got its visibility yet.

    One per Hub: what a rehearsal left unfinished says nothing about a repo of that name elsewhere.
    """
    hub = sha256_bytes(release.hub.encode())[:16]
    return release.state / "created" / hub / f"{member.repo.replace('/', '--')}.json"
