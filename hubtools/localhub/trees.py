"""Listing what is in a repo: the tree, chosen paths, commits."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from hubtools.localhub.failures import entry_not_found
from hubtools.localhub.gitobjects import TreeEntry, lfs_pointer
from hubtools.localhub.history import (
    find_entry,
    get_blob,
    get_commit,
    iso_date,
    log,
    resolve_revision,
    walk,
)
from hubtools.localhub.repos import readable
from hubtools.localhub.state import Answer, Call, Hub

PAGE, PAGE_EXPANDED = 1000, 50


def list_tree(call: Call) -> Answer:
    """GET …/tree/{rev}/{path}: entries below a folder, a page at a time."""
    folder, revision = call.args["path"], call.args["rev"]
    expand = call.flag("expand")
    size = PAGE_EXPANDED if expand else PAGE
    size = max(1, call.number("limit", size, size))
    start = call.number("cursor", 0, 10**9)
    with call.hub.database.reading() as connection:
        repo = readable(connection, call.caller, *call.repo_key)
        commit = resolve_revision(connection, repo.id, revision)
        top = find_entry(connection, get_commit(connection, commit).tree, folder)
        if top is None or not top.is_tree:
            raise entry_not_found(folder, revision)
        prefix = f"{folder}/" if folder else ""
        entries = list(walk(connection, top.oid, prefix, recursive=call.flag("recursive")))
        shown = entries[start : start + size]
        items = _items(call.hub, connection, commit, shown, expand)
    headers = {}
    if start + size < len(entries):
        place = f"{call.hub.url}{repo.api}/tree/{quote(revision, safe='')}"
        if folder:
            place += "/" + quote(folder, safe="")
        query = urlencode({**call.query, "cursor": start + size}, doseq=True)
        headers["Link"] = f'<{place}?{query}>; rel="next"'
    return Answer(items, headers=headers)


def paths_info(call: Call) -> Answer:
    """POST …/paths-info/{rev} (a form): the same items for chosen paths; missing ones left out."""
    form = parse_qs(call.body.decode("utf-8", "replace"))
    expand = form.get("expand", [""])[-1].lower() in ("true", "1")
    with call.hub.database.reading() as connection:
        repo = readable(connection, call.caller, *call.repo_key)
        commit = resolve_revision(connection, repo.id, call.args["rev"])
        tree = get_commit(connection, commit).tree
        paths = [path.strip("/") for path in form.get("paths", [])]
        found = [(path, find_entry(connection, tree, path)) for path in paths if path]
        present = [(path, entry) for path, entry in found if entry is not None]
        return Answer(_items(call.hub, connection, commit, present, expand))


def list_commits(call: Call) -> Answer:
    """GET …/commits/{rev}: newest first, a page at a time."""
    size = max(1, call.number("limit", PAGE_EXPANDED, PAGE))
    page = call.number("p", 0, 10**6)
    revision = call.args["rev"]
    with call.hub.database.reading() as connection:
        repo = readable(connection, call.caller, *call.repo_key)
        head = resolve_revision(connection, repo.id, revision)
        history = list(log(connection, head))
    items = [
        {
            "id": oid,
            "title": commit.title,
            "message": commit.message.partition("\n")[2].lstrip("\n"),
            "authors": [{"user": commit.author}],
            "date": iso_date(commit.when),
        }
        for oid, commit in history[page * size : (page + 1) * size]
    ]
    headers = {"X-Total-Count": str(len(history))}
    if (page + 1) * size < len(history):
        query = urlencode({**call.query, "p": page + 1}, doseq=True)
        place = f"{call.hub.url}{repo.api}/commits/{quote(revision, safe='')}"
        headers["Link"] = f'<{place}?{query}>; rel="next"'
    return Answer(items, headers=headers)


def file_fields(hub: Hub, connection: sqlite3.Connection, oid: str) -> dict[str, Any]:
    """Size and ids of a file, as tree listings show them."""
    blob = get_blob(connection, oid)
    fields: dict[str, Any] = {"size": blob.size, "oid": blob.oid}
    if blob.lfs:
        pointer = len(lfs_pointer(blob.sha256, blob.size))
        fields["lfs"] = {"oid": blob.sha256, "size": blob.size, "pointerSize": pointer}
        xet_hash = hub.xet_hash(blob.sha256)
        if xet_hash is not None:
            fields["xetHash"] = xet_hash
    return fields


def _items(
    hub: Hub,
    connection: sqlite3.Connection,
    commit: str,
    entries: Iterable[tuple[str, TreeEntry]],
    expand: bool,
) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for path, entry in entries:
        if entry.is_tree:
            items.append({"type": "directory", "path": path, "oid": entry.oid, "size": 0})
        else:
            items.append({"type": "file", "path": path} | file_fields(hub, connection, entry.oid))
    if expand:
        changed = _last_changes(connection, commit, [item["path"] for item in items])
        for item in items:
            item["lastCommit"] = changed[item["path"]]
    return items


def _last_changes(
    connection: sqlite3.Connection, commit: str, paths: list[str]
) -> dict[str, dict[str, str]]:
    """Path → the newest commit in which it became what it is."""

    def ids(tree: str) -> dict[str, str]:
        return {path: e.oid for path in paths if (e := find_entry(connection, tree, path))}

    changed: dict[str, dict[str, str]] = {}
    history = list(log(connection, commit))
    now = ids(history[0][1].tree)
    for position, (oid, made) in enumerate(history):
        before = ids(history[position + 1][1].tree) if position + 1 < len(history) else {}
        for path in now.keys() - changed.keys():
            if before.get(path) != now[path]:
                date = iso_date(made.when)
                changed[path] = {"id": oid, "title": made.title, "date": date}
        if len(changed) == len(now):
            break
    return changed
