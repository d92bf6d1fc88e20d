"""Take over a README that somebody wrote by hand: its text becomes prose, nothing is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubtools.card.blocks import PROSE_PREFIX, Block, begin, end, find_blocks, has_marker
from hubtools.card.front_matter import parse
from hubtools.errors import CheckError, UsageError
from hubtools.family.manifest import Member
from hubtools.files import write_atomic, write_json
from hubtools.hub.model import CARD_LOCK, RemoteState
from hubtools.hub.remote import read_remote, read_small
from hubtools.release.context import Release

NOTES = "notes"


@dataclass(frozen=True, slots=True)
class Adopted:
    """What became of a README that a person wrote or edited.

    Args:
        files: prose files that now hold the person's text.
        dropped: edits that no prose file can hold, one line each: metadata, generated blocks.
        copy: the whole README as it was on the Hub.
    """

    files: tuple[Path, ...]
    dropped: tuple[str, ...]
    copy: Path


def adopt(release: Release, member: Member) -> Adopted:
    """Take the remote README's text over as the member's prose, and allow its replacement.

    A card that was rendered here and edited there is taken section by section: an edited section
    becomes this member's `prose/<arm>-<step>/<section>.md`, a deleted one an empty file there, text
    outside the blocks its notes. Only this very README may then be replaced: an edit made later on
    the Hub stops a release again.

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
    text = remote.readme.decode(errors="replace").replace("\r\n", "\n")
    sections, dropped = taken(text, _lock(read_small(release.session, remote, CARD_LOCK)))
    root = release.family.resolve(release.family.manifest.card.prose)
    folder = root / f"{member.arm}-{member.step}"
    notes = folder / f"{NOTES}.md"
    if NOTES in sections and notes.exists() and notes.read_text("utf-8") != sections[NOTES]:
        raise UsageError(
            "HT519",
            "this member has notes already; they are kept",
            where=str(notes),
            next=f"rename {notes.name} or merge it by hand, then run this again",
        )
    copy = _note(release, member.repo).with_suffix(".README.md")
    write_atomic(copy, remote.readme)
    for name, body in sections.items():
        write_atomic(folder / f"{name}.md", body.encode())
    write_json(_note(release, member.repo), {"readme_sha256": remote.readme_sha256})
    files = tuple(folder / f"{name}.md" for name in sections)
    return Adopted(files, tuple(dropped), copy)


def taken(text: str, lock: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """(section → text to keep as prose, edits that cannot be kept) of a remote README.

    Args:
        text: the README.
        lock: our card lock beside it; {} when the card is not one of ours.
    """
    fields, blocks = _front_matter(text), _blocks(text)
    written = {name: str(block["text"]) for name, block in lock.get("blocks", {}).items()}
    known = lock.get("front_matter", {})
    dropped = [
        f"metadata {key}: {fields.get(key)!r} (set it in [family] of the manifest)"
        for key in sorted({*fields, *known})
        if fields.get(key) != known.get(key)
    ]
    sections: dict[str, str] = {}
    for name, ours in written.items():
        now = blocks[name].text if name in blocks else ""
        if now == ours:
            continue
        if name.startswith(PROSE_PREFIX):
            sections[name.removeprefix(PROSE_PREFIX)] = now.strip() + "\n"
        else:
            what = "was edited" if name in blocks else "was deleted"
            dropped.append(f"generated part {name!r} {what}; it is rendered from facts")
    body = _body(text, {name: block.text for name, block in blocks.items()} if written else {})
    if body.strip():
        sections[NOTES] = (sections.get(NOTES, "") + "\n" + body).lstrip("\n")
    return sections, dropped


def adopted(release: Release, remote: RemoteState) -> bool:
    """Whether the README there now is the one that was adopted."""
    try:
        note = json.loads(_note(release, remote.repo).read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return isinstance(note, dict) and note.get("readme_sha256") == remote.readme_sha256


def _note(release: Release, repo: str) -> Path:
    return release.state / "adopted" / f"{repo.replace('/', '--')}.json"


def _lock(data: bytes | None) -> Mapping[str, Any]:
    """Our card lock; {} when there is none that can be read."""
    try:
        lock = json.loads(data or b"{}")
        _ = [str(block["text"]) for block in lock.get("blocks", {}).values()]
        return lock if isinstance(lock.get("front_matter", {}), dict) else {}
    except (ValueError, AttributeError, LookupError, TypeError, RecursionError):
        return {}


def _front_matter(text: str) -> dict[str, Any]:
    try:
        return parse(text)[0]
    except CheckError as error:
        return {"(unreadable)": error.message}


def _blocks(text: str) -> Mapping[str, Block]:
    try:
        return find_blocks(text)
    except CheckError:  # an editor lost a marker: then nothing is known to be ours
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
    blocks = _blocks(text)
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
