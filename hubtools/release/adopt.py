"""Take over a README that somebody wrote by hand: its text becomes prose, nothing is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from hubtools.card.blocks import begin, end, find_blocks, has_marker
from hubtools.errors import CheckError, UsageError
from hubtools.family.manifest import Member
from hubtools.files import write_atomic, write_json
from hubtools.hub.model import CARD_LOCK, RemoteState
from hubtools.hub.remote import read_remote, read_small
from hubtools.release.context import Release

SECTION = "notes"


def adopt(release: Release, member: Member) -> Path | None:
    """Save the remote README's body as the member's `notes` prose, and allow its replacement.

    Of a card that was rendered here and edited there, only what a person wrote is taken: the text
    outside the blocks, and blocks that are not as our lock says we wrote them. Only this very
    README may then be replaced: an edit made later on the Hub stops a release again.

    Returns:
        The prose file; None when a person wrote nothing of that README.

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
    lock = read_small(release.session, remote, CARD_LOCK)
    body = _body(remote.readme.decode(errors="replace"), _written(lock))
    if not body.strip():
        write_json(_note(release, member.repo), {"readme_sha256": remote.readme_sha256})
        return None
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


def _written(lock: bytes | None) -> Mapping[str, str]:
    """Block → the text that our last release wrote into it; {} without a lock."""
    try:
        blocks = json.loads(lock or b"{}").get("blocks", {})
        return {name: str(block["text"]) for name, block in blocks.items()}
    except (ValueError, AttributeError, LookupError, TypeError, RecursionError):
        return {}


def _body(readme: str, written: Mapping[str, str]) -> str:
    """Without front matter; headings one level down, since they stand inside a section."""
    text = readme.replace("\r\n", "\n")
    text = re.sub(r"\A---\n.*?\n---\n", "", text, count=1, flags=re.DOTALL).strip()
    if has_marker(text):
        text = _by_hand(text, written)
    fenced, lines = False, []
    for line in text.splitlines():
        fenced ^= line.startswith(("```", "~~~"))
        deeper = not fenced and re.match(r"#{1,5} ", line)
        lines.append(f"#{line}" if deeper else line)
    return "\n".join(lines) + "\n"


def _by_hand(text: str, written: Mapping[str, str]) -> str:
    """What is left of a rendered card without what was rendered: no markers, no bare headings."""
    try:
        blocks = find_blocks(text)
    except CheckError:  # an editor lost a marker: then nothing is known to be ours
        blocks = {}
    for name, block in blocks.items():
        whole = f"{begin(name)}\n{block.text}{end(name)}"
        if block.text == written.get(name):  # ours, and so is the heading over it
            text = re.sub(
                rf"(?:^#{{1,6}} .*\n\n?)?{re.escape(whole)}", "", text, flags=re.MULTILINE
            )
        else:
            text = text.replace(whole, block.text.strip("\n"), 1)
    lines = [line for line in text.splitlines() if not has_marker(line)]
    kept: list[str] = []
    for line in reversed(lines):
        below = next((k for k in reversed(kept) if k.strip()), "# ")
        heading = re.match(r"#{1,6} ", line)
        if heading and blocks and re.match(r"#{1,6} ", below):
            continue
        kept.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(reversed(kept))).strip()
