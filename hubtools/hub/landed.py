"""What became of a commit: it landed, nothing happened, or somebody else was there first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hubtools.errors import RemoteMovedError
from hubtools.hub.diff import same_content
from hubtools.hub.explain import AGAIN
from hubtools.hub.model import CommitResult, LocalFile, RepoType
from hubtools.hub.network import call, request
from hubtools.hub.remote import list_files
from hubtools.hub.session import Session


@dataclass(frozen=True, slots=True)
class Goal:
    """The commit that is wanted: on top of `parent`, these files there and these paths gone."""

    repo: str
    repo_type: RepoType
    parent: str | None
    files: tuple[LocalFile, ...]
    delete: tuple[str, ...]


def find_landed(session: Session, goal: Goal, answered: str = "") -> CommitResult | None:
    """The commit that was made on top of `goal.parent`, when it is what was wanted.

    Args:
        session: the Hub.
        goal: what was wanted.
        answered: the commit id that the Hub gave as its answer, if it answered.

    Returns:
        The commit (`already`), or None when `main` is still at the parent or at `answered`.

    Raises:
        RemoteMovedError: HT301 when that commit is somebody else's.
        EnvironmentFailure: the Hub cannot be asked.
    """
    newer = _newer(session, goal)
    if not newer:
        return None
    oid = str(newer[-1]["id"])
    if oid == answered:
        return None
    there = list_files(session, goal.repo, goal.repo_type, oid)
    if set(goal.delete) & there.keys() or not all(
        f.path in there and same_content(f, there[f.path]) for f in goal.files
    ):
        raise _moved(session, goal, newer[0])
    prefix = "datasets/" if goal.repo_type == "dataset" else ""
    url = f"{session.endpoint}/{prefix}{goal.repo}/commit/{oid}"
    return CommitResult(oid, url, already=True)


def _newer(session: Session, goal: Goal) -> list[Mapping[str, Any]]:
    """Commits of `main` after the parent, newest first; all when it is not in the history."""
    from huggingface_hub.utils._http import hf_raise_for_status

    newer: list[Mapping[str, Any]] = []
    path: str | None = f"/api/{goal.repo_type}s/{goal.repo}/commits/main"
    while path is not None:

        def page(path: str = path) -> Any:
            response = request(session, "GET", path)
            hf_raise_for_status(response)
            return response

        response = call(session, "reading the history", page, repo=goal.repo)
        for entry in response.json():
            if entry["id"] == goal.parent:
                return newer
            newer.append(entry)
        following = response.links.get("next", {}).get("url")
        path = following and following.removeprefix(session.endpoint)
    return newer


def _moved(session: Session, goal: Goal, now: Mapping[str, Any]) -> RemoteMovedError:
    """HT301, naming who was there and what they did."""
    who = ", ".join(author["user"] for author in now.get("authors") or []) or "somebody"
    title = session.redact(str(now.get("title", "")))
    date = str(now.get("date", ""))[:16].replace("T", " ")
    return RemoteMovedError(
        "HT301",
        f"remote moved since the plan: {goal.repo}",
        where=goal.repo,
        detail=(
            f'planned on main@{(goal.parent or "none")[:7]}, now {now["id"][:7]} "{title}" '
            f"({date} UTC, by {who})",
            "Nothing was pushed to this repo.",
        ),
        next=f"hubtools plan (shows the new difference), then {AGAIN}",
    )
