"""What the Hub refuses, known before anything is sent: names, paths, sizes, counts.

Sources: the Hub's storage-limits page and the checks of its own client.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from hubtools.errors import Finding
from hubtools.hub.model import RepoPlan

GB = 1000**3
FILE_LIMIT = 500 * GB
FILE_ADVICE = 200 * GB
FOLDER_LIMIT = 10_000
REPO_ADVICE = 100_000
COMMIT_LIMIT = 25_000
NAME_LIMIT = 96

_WORD = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_FORBIDDEN = {"", ".", "..", ".git", ".cache"}


def repo_id_problem(repo: str) -> str | None:
    """Why the Hub would refuse this `owner/name`, or None."""
    owner, slash, name = repo.partition("/")
    if not slash or not owner or not name or "/" in name:
        return "it must be owner/name"
    for what, part in (("owner", owner), ("name", name)):
        if len(part) > NAME_LIMIT:
            return f"the {what} has {len(part)} characters, the Hub allows {NAME_LIMIT}"
        if not _WORD.fullmatch(part):
            wrong = sorted({c for c in part if not _WORD.fullmatch(c)})
            return f"the {what} holds {' '.join(map(repr, wrong))}, not a letter, digit, _ . or -"
        if part[0] in "-." or part[-1] in "-.":
            return f"the {what} must not begin or end with - or ."
        if "--" in part or ".." in part:
            return f"the {what} must not hold -- or .."
    if name.endswith(".git"):
        return "the name must not end with .git"
    return None


def path_problem(path: str) -> str | None:
    """Why the Hub would refuse this path in a repo, or None."""
    bad = _FORBIDDEN & set(path.split("/"))
    if bad:
        return f"it has the segment {min(bad)!r}, which the Hub refuses"
    if "\\" in path or any(ord(c) < 32 or ord(c) == 127 for c in path):
        return "it holds a backslash or a control character"
    return None


def plan_findings(plan: RepoPlan) -> list[Finding]:
    """Everything about the names, sizes and counts of one repo that the Hub would refuse."""
    findings = [*_name_findings(plan), *_count_findings(plan)]
    for file in plan.files:
        if problem := path_problem(file.path):
            findings.append(
                Finding(
                    "HT312",
                    "error",
                    f"path not allowed: {file.path!r}: {problem}",
                    where=plan.repo,
                    next="rename the file, then run the same command again",
                )
            )
        if file.size > FILE_ADVICE:
            over = file.size > FILE_LIMIT
            findings.append(
                Finding(
                    "HT313",
                    "error" if over else "warning",
                    f"{file.path} has {file.size / GB:.0f} GB; the Hub "
                    + ("refuses files over 500 GB" if over else "advises files below 200 GB"),
                    where=plan.repo,
                    next="write smaller shards (max_shard_size), then run the same command again",
                )
            )
    return findings


def _name_findings(plan: RepoPlan) -> list[Finding]:
    problem = repo_id_problem(plan.repo)
    if problem is None:
        return []
    return [
        Finding(
            "HT311",
            "error",
            f"repo id not allowed: {plan.repo}: {problem}",
            where=plan.repo,
            next="shorten or correct `owner` and `name` in family.toml, then: hubtools plan",
        )
    ]


def _count_findings(plan: RepoPlan) -> list[Finding]:
    fix = "pack small files together, then run the same command again"

    def finding(level: str, message: str) -> Finding:
        return Finding(
            "HT314",
            "error" if level == "error" else "warning",
            message,
            where=plan.repo,
            next=fix,
        )

    findings = [
        finding("error", f"folder {name or '/'} has {count} entries, the Hub allows {FOLDER_LIMIT}")
        for name, count in sorted(_entries(f.path for f in plan.files).items())
        if count > FOLDER_LIMIT
    ]
    if len(plan.files) > COMMIT_LIMIT:
        findings.append(
            finding("error", f"{len(plan.files)} files, one commit holds {COMMIT_LIMIT}")
        )
    if len(plan.files) > REPO_ADVICE:
        findings.append(
            finding("warning", f"{len(plan.files)} files, the Hub advises fewer than {REPO_ADVICE}")
        )
    return findings


def _entries(paths: Iterable[str]) -> Counter[str]:
    """Folder → how many files and folders lie directly in it; the root is the empty string."""
    seen: set[str] = set()
    for path in paths:
        while path and path not in seen:
            seen.add(path)
            path = path.rpartition("/")[0]
    return Counter(path.rpartition("/")[0] for path in seen)
