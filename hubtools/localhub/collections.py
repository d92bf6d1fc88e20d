"""Collections: a titled, ordered list of repos; as much as a release of a family needs."""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
from typing import Any

from hubtools.localhub.accounts import Caller
from hubtools.localhub.failures import ApiFailure, bad_request
from hubtools.localhub.history import iso_date
from hubtools.localhub.state import Answer, Call, text_of

_ITEM_TYPES = ("model", "dataset", "space", "paper", "collection")


def create(call: Call) -> Answer:
    """POST /api/collections; 409 with the slug when this owner has one of that title."""
    asked = call.json()
    title, owner = text_of(asked, "title").strip(), text_of(asked, "namespace")
    if not title or not owner:
        raise bad_request("a collection needs a title and a namespace")
    _require_owner(call.caller, owner)
    stem = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60] or "collection"
    slug = f"{owner}/{stem}-{secrets.token_hex(12)}"
    collection: dict[str, Any] = {
        "slug": slug,
        "title": title,
        "description": asked.get("description"),
        "owner": {"name": owner, "type": "user"},
        "items": [],
        "lastUpdated": iso_date(call.hub.clock()),
        "position": 0,
        "private": bool(asked.get("private", False)),
        "theme": "orange",
        "upvotes": 0,
    }
    with call.hub.database.writing() as connection:
        for row in connection.execute("SELECT * FROM collections WHERE owner = ?", (owner,)):
            if json.loads(row["data"])["title"] == title:
                raise ApiFailure(409, f"{owner} has it already", body={"slug": row["slug"]})
        connection.execute(
            "INSERT INTO collections (slug, owner, data) VALUES (?, ?, ?)",
            (slug, owner, json.dumps(collection)),
        )
    return Answer(collection)


def show(call: Call) -> Answer:
    """GET /api/collections/{owner}/{slug}."""
    with call.hub.database.reading() as connection:
        return Answer(_load(connection, call, write=False))


def list_all(call: Call) -> Answer:
    """GET /api/collections?owner=."""
    with call.hub.database.reading() as connection:
        rows = connection.execute("SELECT owner, data FROM collections ORDER BY slug").fetchall()
    owner = call.parameter("owner").lower()
    found = [json.loads(row["data"]) for row in rows if not owner or row["owner"].lower() == owner]
    return Answer([c for c in found if not c["private"] or call.caller.owns(c["owner"]["name"])])


def update(call: Call) -> Answer:
    """PATCH title, description, private, theme, position."""
    asked = call.json()
    with call.hub.database.writing() as connection:
        collection = _load(connection, call, write=True)
        for key in ("title", "description", "private", "theme", "position"):
            if key in asked:
                collection[key] = asked[key]
        _store(connection, call, collection)
    return Answer({"success": True, "data": collection})


def delete(call: Call) -> Answer:
    """DELETE the collection; the repos in it stay."""
    with call.hub.database.writing() as connection:
        collection = _load(connection, call, write=True)
        connection.execute("DELETE FROM collections WHERE slug = ?", (collection["slug"],))
    return Answer({"success": True})


def add_item(call: Call) -> Answer:
    """POST …/items; 409 when it is in already."""
    asked = call.json()
    item = asked.get("item")
    if not isinstance(item, dict) or item.get("type") not in _ITEM_TYPES or not item.get("id"):
        raise bad_request(f"an item needs an id and a type of {', '.join(_ITEM_TYPES)}")
    with call.hub.database.writing() as connection:
        collection = _load(connection, call, write=True)
        items = collection["items"]
        if any((i["type"], i["id"]) == (item["type"], item["id"]) for i in items):
            raise ApiFailure(409, f"{item['id']} is in the collection already")
        entry = {"_id": secrets.token_hex(12), "id": item["id"], "type": item["type"]}
        entry["position"] = len(items)
        if asked.get("note"):
            entry["note"] = {"text": str(asked["note"])}
        items.append(entry)
        _store(connection, call, collection)
    return Answer(collection)


def update_item(call: Call) -> Answer:
    """PATCH …/items/{item}: note, position."""
    asked = call.json()
    with call.hub.database.writing() as connection:
        collection = _load(connection, call, write=True)
        item = _item(collection, call.args["item"])
        if "note" in asked:
            item["note"] = {"text": str(asked["note"])}
        if isinstance(asked.get("position"), int):
            items = collection["items"]
            items.remove(item)
            items.insert(asked["position"], item)
            for position, entry in enumerate(items):
                entry["position"] = position
        _store(connection, call, collection)
    return Answer({"success": True})


def delete_item(call: Call) -> Answer:
    """DELETE …/items/{item}."""
    with call.hub.database.writing() as connection:
        collection = _load(connection, call, write=True)
        collection["items"].remove(_item(collection, call.args["item"]))
        _store(connection, call, collection)
    return Answer({"success": True})


def _item(collection: dict[str, Any], id: str) -> dict[str, Any]:
    for item in collection["items"]:
        if item["_id"] == id:
            found: dict[str, Any] = item
            return found
    raise ApiFailure(404, f"no item {id} in the collection")


def _load(connection: sqlite3.Connection, call: Call, *, write: bool) -> dict[str, Any]:
    slug = f"{call.args['owner']}/{call.args['slug']}"
    row = connection.execute("SELECT * FROM collections WHERE slug = ?", (slug,)).fetchone()
    collection: dict[str, Any] | None = json.loads(row["data"]) if row else None
    if collection is None or (collection["private"] and not call.caller.owns(row["owner"])):
        raise ApiFailure(404, f"no collection {slug} here")
    if write:
        _require_owner(call.caller, row["owner"])
    return collection


def _store(connection: sqlite3.Connection, call: Call, collection: dict[str, Any]) -> None:
    collection["lastUpdated"] = iso_date(call.hub.clock())
    connection.execute(
        "UPDATE collections SET data = ? WHERE slug = ?",
        (json.dumps(collection), collection["slug"]),
    )


def _require_owner(caller: Caller, owner: str) -> None:
    if not caller.name:
        raise ApiFailure(401, "log in with a token that has the write role")
    if not caller.may_write(owner):
        raise ApiFailure(403, f"{caller.name} may not write to {owner}")
