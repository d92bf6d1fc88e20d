"""Branches and tags."""

from __future__ import annotations

import sqlite3

from hubtools.localhub.failures import ApiFailure, bad_request, revision_not_found
from hubtools.localhub.history import (
    HEADS,
    TAGS,
    add_commit,
    files_of,
    find_ref,
    resolve_revision,
    set_ref,
)
from hubtools.localhub.repos import readable, writable
from hubtools.localhub.state import Answer, Call, text_of
from hubtools.localhub.validation import check_branch


def list_refs(call: Call) -> Answer:
    """GET …/refs."""
    with call.hub.database.reading() as connection:
        repo = readable(connection, call.caller, *call.repo_key)
        rows = connection.execute(
            "SELECT ref, oid FROM refs WHERE repo = ? ORDER BY ref", (repo.id,)
        ).fetchall()

    def below(prefix: str) -> list[dict[str, str]]:
        return [
            {"name": r["ref"].removeprefix(prefix), "ref": r["ref"], "targetCommit": r["oid"]}
            for r in rows
            if r["ref"].startswith(prefix)
        ]

    answer = {"branches": below(HEADS), "tags": below(TAGS), "converts": []}
    return Answer(answer | ({"pullRequests": []} if call.flag("include_prs") else {}))


def create_branch(call: Call) -> Answer:
    """POST …/branch/{branch}."""
    start = text_of(call.json(), "startingPoint", "main")
    return _create(call, HEADS, call.args["branch"], start, "")


def delete_branch(call: Call) -> Answer:
    """DELETE …/branch/{branch}; `main` stays."""
    if call.args["branch"] == "main":
        raise ApiFailure(403, "the branch main cannot be deleted")
    return _delete(call, HEADS, call.args["branch"])


def create_tag(call: Call) -> Answer:
    """POST …/tag/{rev}."""
    asked = call.json()
    tag, message = text_of(asked, "tag"), text_of(asked, "message")
    return _create(call, TAGS, tag, call.args["rev"], message)


def delete_tag(call: Call) -> Answer:
    """DELETE …/tag/{tag}."""
    return _delete(call, TAGS, call.args["rev"])


def super_squash(call: Call) -> Answer:
    """POST …/super-squash/{branch}: one commit with the branch's tree and no past."""
    branch = call.args["branch"]
    message = text_of(call.json(), "message", f"Super-squash branch '{branch}'")
    with call.hub.database.writing() as connection:
        repo = writable(connection, call.caller, *call.repo_key)
        head = find_ref(connection, repo.id, HEADS + branch)
        if head is None:
            raise revision_not_found(branch)
        files = files_of(connection, head)
        now, author = call.hub.clock(), call.caller.name
        oid = add_commit(connection, repo.id, branch, None, files, author, now, message)
    return Answer({"commitOid": oid})


def _create(call: Call, kind: str, name: str, start: str, message: str) -> Answer:
    check_branch(name)
    with call.hub.database.writing() as connection:
        repo = writable(connection, call.caller, *call.repo_key)
        if find_ref(connection, repo.id, kind + name) is not None:
            raise ApiFailure(409, f"{kind}{name} exists already")
        _check_nesting(connection, repo.id, kind + name)
        commit = resolve_revision(connection, repo.id, start)
        set_ref(connection, repo.id, kind + name, commit, message)
    return Answer({"ref": kind + name, "targetCommit": commit}, status=201)


def _check_nesting(connection: sqlite3.Connection, repo: int, ref: str) -> None:
    """As in git, a ref cannot lie below another: `a` and `a/b` exclude each other."""
    for row in connection.execute("SELECT ref FROM refs WHERE repo = ?", (repo,)):
        other = str(row["ref"])
        if other.startswith(ref + "/") or ref.startswith(other + "/"):
            raise bad_request(f"{ref} and {other} cannot both exist")


def _delete(call: Call, kind: str, name: str) -> Answer:
    with call.hub.database.writing() as connection:
        repo = writable(connection, call.caller, *call.repo_key)
        found = connection.execute(
            "DELETE FROM refs WHERE repo = ? AND ref = ?", (repo.id, kind + name)
        ).rowcount
    if not found:
        raise revision_not_found(name)
    return Answer({"deleted": kind + name})
