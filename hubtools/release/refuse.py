"""From findings to the error that stops a release, and back."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from hubtools.errors import AuthError, CheckError, Finding, HubtoolsError


def as_finding(error: HubtoolsError, member: str = "") -> Finding:
    """A failure met while checking, as one line of the list."""
    details = [text for text in error.detail if not text.startswith("Nothing ")]
    text = "; ".join([error.message, *details])
    return Finding(error.id, "error", text, where=error.where, next=error.next, member=member)


_OPTIONS = (  # of merge and ingest: as a fix names them, then as a manifest states them
    (
        r"ingest (.+) -o OUT .*# the adapter is there",
        "set checkpoint to {} in [inputs], and lora_alpha = ALPHA in [ingest],",
        "",
    ),
    (r"without --lora-alpha", "remove lora_alpha from [ingest]", "leave --lora-alpha out"),
    (r"--lora-alpha \w+", "add lora_alpha = ALPHA to [ingest]", "--lora-alpha ALPHA"),
    (r"ingest .*--dtype (\w+)", 'add dtype = "{}" to [ingest]', "--dtype {}"),
    (r"--engine peft", 'add engine = "peft" to [merge]', ""),
    (r"--base-is-residual", "add base_is_residual = true to [merge]", ""),
    (r"--base DIR", "correct base, or give it its path,", "--base-path DIR"),
)


def in_manifest(fix: str, place: str) -> str:
    """What to do about an error of `merge` or `ingest`, in the words of a manifest.

    Args:
        fix: the error's `next`.
        place: the manifest.
    """
    for pattern, words, flag in _OPTIONS:
        if found := re.search(pattern, fix):
            option = f" (with --from: {flag.format(*found.groups())})" if flag else ""
            return f"{words.format(*found.groups())} in {place}{option}"
    return fix


def as_release(fix: str, repo: str, base: str) -> str:
    """What to do about an error of `ingest`, as the command of a release without a manifest.

    Args:
        fix: the error's `next`.
        repo: to release as.
        base: the base that was named, or empty.
    """
    found = re.fullmatch(r"hubtools ingest (.+) -o OUT((?: --\S+ \S+)*(?:  #.*)?)", fix)
    if found is None:
        return in_manifest(fix, "the manifest")
    named = f" --base {shlex.quote(base)}" if base else ""
    return f"hubtools release {repo} --from {found[1]}{named}{found[2]}"


def grouped(findings: Sequence[Finding]) -> list[Finding]:
    """The same finding about several members as one, which names them."""
    members: dict[Finding, list[str]] = {}
    for finding in findings:
        members.setdefault(replace(finding, member=""), []).append(finding.member)
    return [replace(one, member=", ".join(filter(None, who))) for one, who in members.items()]


def told(finding: Finding) -> str:
    """A finding as one line of the story."""
    about = f"{finding.member}: " if finding.member else ""
    place = f" ({finding.where})" if finding.where else ""
    return f"{finding.level}[{finding.id}] {about}{finding.message}{place}"


def refuse(findings: Sequence[Finding]) -> None:
    """Stop on error findings, with all of them in the message.

    Raises:
        CheckError, AuthError: the first one's id; the others as details.
    """
    errors = grouped([finding for finding in findings if finding.level == "error"])
    if not errors:
        return
    first, rest = errors[0], errors[1:]
    kind = AuthError if {f.id for f in errors} <= {"HT304", "HT305"} else CheckError
    detail = [
        f"{f.member + ': ' if f.member else ''}{f.message} ({f.where}) [{f.id}]" for f in rest
    ]
    raise kind(
        first.id,
        f"{first.member + ': ' if first.member else ''}{first.message}",
        where=first.where,
        detail=[*detail, "Nothing was changed."],
        next=first.next,
    )
