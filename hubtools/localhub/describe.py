"""What the API says about a repo: its info object, lists of repos."""

from __future__ import annotations

import json
import re
import sqlite3
from typing import Any

import yaml

from hubtools.localhub.gitobjects import Commit
from hubtools.localhub.history import (
    files_of,
    find_entry,
    find_ref,
    get_blob,
    get_commit,
    iso_date,
    resolve_revision,
)
from hubtools.localhub.repos import Repo, listed, readable
from hubtools.localhub.state import TYPES, Answer, Call, Hub
from hubtools.localhub.trees import file_fields
from hubtools.localhub.validation import front_matter

_ARXIV = re.compile(
    r"(?:arxiv\.org/(?:abs|pdf)/|hf\.co/papers/|huggingface\.co/papers/)(\d{4}\.\d{4,5})"
)
_README_LIMIT = 1 << 20


def repo_info(call: Call) -> Answer:
    """GET /api/{types}/{owner}/{name}[/revision/{rev}]."""
    with call.hub.database.reading() as connection:
        repo = readable(connection, call.caller, *call.repo_key)
        head = resolve_revision(connection, repo.id, call.args.get("rev") or "main")
        info = _info(call.hub, connection, repo, head)
        info["siblings"] = _siblings(call, connection, head)
        info["usedStorage"] = _used_storage(connection, repo)
        return Answer(info)


def list_repos(call: Call) -> Answer:
    """GET /api/{types}?author=&search=&filter=&limit=: what the caller may see, newest first."""
    limit = call.number("limit", 1000, 1000)
    wanted = set(call.query.get("filter", []))
    found = []
    with call.hub.database.reading() as connection:
        for repo in listed(connection, call.caller, TYPES[call.args["types"]]):
            if call.parameter("author", repo.owner).lower() != repo.owner.lower():
                continue
            if call.parameter("search").lower() not in repo.full_name.lower():
                continue
            head = find_ref(connection, repo.id, "refs/heads/main")
            if head is None:
                continue
            info = _info(call.hub, connection, repo, head)
            if not wanted <= set(info["tags"]):
                continue
            found.append(info)
            if len(found) == limit:
                break
    return Answer(found)


def _info(hub: Hub, connection: sqlite3.Connection, repo: Repo, head: str) -> dict[str, Any]:
    commit = get_commit(connection, head)
    text = readme(hub, connection, commit)
    card = card_data(text)
    info: dict[str, Any] = {
        "_id": f"{repo.id:024x}",
        "id": repo.full_name,
        "author": repo.owner,
        "sha": head,
        "lastModified": iso_date(commit.when),
        "createdAt": iso_date(repo.created),
        "private": repo.private,
        "gated": repo.gated or False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": _tags(card, text),
        "cardData": card,
    }
    if repo.type == "model":
        info["modelId"] = repo.full_name
        for key in ("library_name", "pipeline_tag"):
            if isinstance(card.get(key), str):
                info[key] = card[key]
    if repo.sdk:
        info["sdk"] = repo.sdk
    return info


def readme(hub: Hub, connection: sqlite3.Connection, commit: Commit) -> str:
    """The repo's README (its first MiB); empty when there is none."""
    entry = find_entry(connection, commit.tree, "README.md")
    if entry is None or entry.is_tree:
        return ""
    with hub.objects.path(get_blob(connection, entry.oid).sha256).open("rb") as stream:
        return stream.read(_README_LIMIT).decode("utf-8", "replace")


def card_data(text: str) -> dict[str, Any]:
    """A README's metadata as JSON values; empty when it does not parse."""
    try:
        data: dict[str, Any] = json.loads(json.dumps(front_matter(text), default=str))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        return {}
    return data


def _tags(card: dict[str, Any], text: str) -> list[str]:
    tags: list[str] = []
    for key, prefix in (
        ("tags", ""),
        ("library_name", ""),
        ("pipeline_tag", ""),
        ("language", ""),
        ("datasets", "dataset:"),
        ("base_model", "base_model:"),
        ("license", "license:"),
    ):
        value = card.get(key)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str):
                tags.append(prefix + item)
    tags += [f"arxiv:{number}" for number in _ARXIV.findall(text)]
    return list(dict.fromkeys(tags))


def _siblings(call: Call, connection: sqlite3.Connection, head: str) -> list[dict[str, Any]]:
    files = files_of(connection, head)
    if not call.flag("blobs"):
        return [{"rfilename": path} for path in files]
    siblings = []
    for path, oid in files.items():
        fields = file_fields(call.hub, connection, oid)
        item = {"rfilename": path, "size": fields["size"], "blobId": oid}
        if "lfs" in fields:
            lfs = fields["lfs"]
            item["lfs"] = {
                "sha256": lfs["oid"],
                "size": lfs["size"],
                "pointerSize": lfs["pointerSize"],
            }
        siblings.append(item)
    return siblings


def _used_storage(connection: sqlite3.Connection, repo: Repo) -> int:
    blobs: set[str] = set()
    for row in connection.execute("SELECT oid FROM commits WHERE repo = ?", (repo.id,)):
        blobs.update(files_of(connection, row["oid"]).values())
    return sum(get_blob(connection, oid).size for oid in blobs)
