"""What the tests of this room share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hubtools.hub.diff import diff_files
from hubtools.hub.localfiles import describe
from hubtools.hub.model import RELEASE_RECORD, CommitResult, LocalFile, files_record
from hubtools.hub.push import commit, ensure_repo, preupload
from hubtools.hub.remote import read_remote
from hubtools.hub.session import Patience, Session

TOKEN = "hf_SecretSecretSecretSecretSecret"
QUICK = Patience(attempts=3, base=0.01, cap=0.05)


@dataclass
class Canned:
    """Answers in order; the last one is repeated. `(status, headers, body)`, or None: hang up."""

    url: str = ""
    answers: list[tuple[int, dict[str, str], bytes] | None] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)


CARD = "---\nlicense: apache-2.0\n---\n# A card\n"


def release(folder: Path, files: dict[str, bytes]) -> list[LocalFile]:
    """Files of a release on disk, with the record that lists them."""
    described = []
    for path, data in files.items():
        source = folder / path
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_bytes(data)
        described.append(describe(path, source))
    record = folder / RELEASE_RECORD
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps({"files": files_record(described)}))
    return [*described, describe(RELEASE_RECORD, record)]


def history(session: Session, repo: str) -> list[str]:
    """Titles of the commits on main, newest first."""
    return [c.title for c in session.api.list_repo_commits(repo)]


def publish(
    session: Session, repo: str, files: Sequence[LocalFile], message: str = "Release"
) -> CommitResult | None:
    """What the push stage does for one repo."""
    ensure_repo(session, repo)
    remote = read_remote(session, repo)
    diff = diff_files(remote, files)
    if diff.empty:
        return None
    prepared = preupload(session, repo, diff.send)
    return commit(session, prepared, parent=remote.head, message=message, delete=diff.delete)
