"""Take over a README that somebody wrote by hand: its text becomes prose, nothing is lost."""

from __future__ import annotations

import json
import re
from pathlib import Path

from hubtools.errors import CheckError, UsageError
from hubtools.family.manifest import Member
from hubtools.files import write_atomic, write_json
from hubtools.hub.model import RemoteState
from hubtools.hub.remote import read_remote
from hubtools.release.context import Release

SECTION = "notes"


def adopt(release: Release, member: Member) -> Path:
    """Save the remote README's body as the member's `notes` prose, and allow its replacement.

    Only this very README may then be replaced: an edit made later on the Hub stops a release again.

    Returns:
        The prose file.

    Raises:
        CheckError: HT518, there is no README to adopt.
        UsageError: HT519, the member has notes already, which would be overwritten.
    """
    assert release.session is not None
    remote = read_remote(release.session, member.repo)
    if remote.readme is None:
        raise CheckError(
            "HT518",
            "no README there to adopt",
            where=member.repo,
            next=f"hubtools release {member.repo}",
        )
    folder = release.family.resolve(release.family.manifest.card.prose)
    file = folder / f"{member.arm}-{member.step}" / f"{SECTION}.md"
    body = _body(remote.readme.decode(errors="replace"))
    if file.exists() and file.read_text(encoding="utf-8") != body:
        raise UsageError(
            "HT519",
            "this member has notes already; they are kept",
            where=str(file),
            next=f"rename {file.name} or merge it by hand, then run this again",
        )
    write_atomic(file, body.encode())
    write_json(_note(release, member.repo), {"readme_sha256": remote.readme_sha256})
    return file


def adopted(release: Release, remote: RemoteState) -> bool:
    """Whether the README there now is the one that was adopted."""
    try:
        note = json.loads(_note(release, remote.repo).read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return isinstance(note, dict) and note.get("readme_sha256") == remote.readme_sha256


def _note(release: Release, repo: str) -> Path:
    return release.state / "adopted" / f"{repo.replace('/', '--')}.json"


def _body(readme: str) -> str:
    """Without front matter; headings one level down, since they stand inside a section."""
    text = readme.replace("\r\n", "\n")
    text = re.sub(r"\A---\n.*?\n---\n", "", text, count=1, flags=re.DOTALL).strip()
    fenced, lines = False, []
    for line in text.splitlines():
        fenced ^= line.startswith(("```", "~~~"))
        deeper = not fenced and re.match(r"#{1,5} ", line)
        lines.append(f"#{line}" if deeper else line)
    return "\n".join(lines) + "\n"
