"""Endpoints a publishing client calls: who am I, repos, preupload, storage tokens, commit."""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import AsyncIterator

from hubtools.localhub.commits import LINE_LIMIT, REGULAR_LIMIT, Draft, land
from hubtools.localhub.failures import ApiFailure, bad_request
from hubtools.localhub.history import (
    find_entry,
    get_blob,
    get_commit,
    resolve_revision,
)
from hubtools.localhub.patterns import is_ignored, is_lfs, lfs_patterns
from hubtools.localhub.repos import (
    PREFIX,
    change_settings,
    check_gate,
    create,
    move,
    readable,
    writable,
)
from hubtools.localhub.state import Answer, Call, objects_of, text_of
from hubtools.localhub.validation import check_path, validate_card

_TOKEN_SECONDS = 3600


def whoami(call: Call) -> Answer:
    """GET /api/whoami-v2."""
    caller = call.caller
    if not caller.name:
        raise ApiFailure(401, "Invalid username or password.")
    with call.hub.database.reading() as connection:
        rows = connection.execute("SELECT name FROM users WHERE kind = 'org'").fetchall()
    orgs = [row["name"] for row in rows] if caller.admin else []
    return Answer(
        {
            "type": "user",
            "id": caller.name,
            "name": caller.name,
            "fullname": caller.name,
            "isPro": False,
            "orgs": [{"type": "org", "name": name, "roleInOrg": "admin"} for name in orgs],
            "auth": {
                "type": "access_token",
                "accessToken": {"displayName": "local", "role": caller.role},
            },
        }
    )


def create_repo(call: Call) -> Answer:
    """POST /api/repos/create; 409 (with the url) when it is there."""
    repo, fresh = create(call.hub, call.caller, call.json())
    url = f"{call.hub.url}{repo.page}"
    if not fresh:
        raise ApiFailure(409, f"{repo.full_name} exists already", body={"url": url})
    return Answer({"url": url, "name": repo.full_name, "id": f"{repo.id:024x}"})


def delete_repo(call: Call) -> Answer:
    """DELETE /api/repos/delete; its objects stay on disk, for others may share them."""
    asked = call.json()
    name = text_of(asked, "name")
    owner = text_of(asked, "organization", call.caller.name)
    if "/" in name:
        owner, _, name = name.partition("/")
    with call.hub.database.writing() as connection:
        repo = writable(connection, call.caller, text_of(asked, "type", "model"), owner, name)
        connection.execute("DELETE FROM repos WHERE id = ?", (repo.id,))
    return Answer({"deleted": repo.full_name})


def move_repo(call: Call) -> Answer:
    """POST /api/repos/move."""
    with call.hub.database.writing() as connection:
        repo = move(connection, call.caller, call.json())
    return Answer({"url": f"{call.hub.url}{repo.page}"})


def settings(call: Call) -> Answer:
    """PUT …/settings."""
    asked = call.json()
    with call.hub.database.writing() as connection:
        repo = writable(connection, call.caller, *call.repo_key)
        return Answer(change_settings(connection, repo, asked))


def auth_check(call: Call) -> Answer:
    """GET …/auth-check: may the caller read the content?"""
    with call.hub.database.reading() as connection:
        check_gate(call.caller, readable(connection, call.caller, *call.repo_key))
    return Answer({"ok": True})


def auth_check_write(call: Call) -> Answer:
    """GET …/auth-check/write: may the caller change it?"""
    with call.hub.database.reading() as connection:
        writable(connection, call.caller, *call.repo_key)
    return Answer({"ok": True})


def validate_yaml(call: Call) -> Answer:
    """POST /api/validate-yaml: the card rules, without pushing."""
    verdict = validate_card(text_of(call.json(), "content"))
    return Answer(verdict.to_json(), status=400 if verdict.errors else 200)


def preupload(call: Call) -> Answer:
    """POST …/preupload/{rev}: per file, LFS or regular, ignored or not, and what is there now."""
    asked = call.json()
    _refuse_pull_request(call)
    with call.hub.database.reading() as connection:
        repo = writable(connection, call.caller, *call.repo_key)
        commit = resolve_revision(connection, repo.id, call.args["rev"])
        tree = get_commit(connection, commit).tree

        def content(path: str) -> str:
            entry = find_entry(connection, tree, path)
            if entry is None or entry.is_tree:
                return ""
            where = call.hub.objects.path(get_blob(connection, entry.oid).sha256)
            return where.read_text(errors="replace")

        patterns = lfs_patterns(content(".gitattributes"))
        ignore = text_of(asked, "gitIgnore") or content(".gitignore")
        answers = []
        for item in objects_of(asked, "files"):
            path, size = check_path(item.get("path")), item.get("size", 0)
            if not isinstance(size, int):
                raise bad_request(f"{path}: size must be a number")
            entry = find_entry(connection, tree, path)
            blob = get_blob(connection, entry.oid) if entry and not entry.is_tree else None
            lfs = size > 0 and (
                is_lfs(path, patterns) or size > REGULAR_LIMIT or _is_binary(item.get("sample"))
            )
            answer = {
                "path": path,
                "uploadMode": "lfs" if lfs else "regular",
                "shouldIgnore": is_ignored(path, ignore),
            }
            if blob is not None:
                answer["oid"] = blob.sha256 if blob.lfs else blob.oid
            answers.append(answer)
    return Answer({"files": answers, "commitOid": commit})


def _is_binary(sample: object) -> bool:
    try:
        return b"\0" in base64.b64decode(str(sample or ""))
    except binascii.Error as error:
        raise bad_request("sample is not base64") from error


def _refuse_pull_request(call: Call) -> None:
    if call.flag("create_pr"):
        raise ApiFailure(501, "this embedded Hub has no pull requests: commit to a branch")


def xet_token(call: Call) -> Answer:
    """GET …/xet-{read|write}-token/{rev}: where xet storage is, and a token for it.

    The Rust client reads the JSON, the Python one the headers.
    """
    if not call.hub.xet:
        raise ApiFailure(404, "this Hub has no xet storage: set HF_HUB_DISABLE_XET=1")
    _refuse_pull_request(call)
    write = call.args["mode"] == "write"
    with call.hub.database.reading() as connection:
        if write:
            repo = writable(connection, call.caller, *call.repo_key)
        else:
            repo = readable(connection, call.caller, *call.repo_key)
            check_gate(call.caller, repo)
    expires = int(time.time()) + _TOKEN_SECONDS
    token = call.hub.accounts.storage_token(repo.full_name, write, expires)
    url = f"{call.hub.url}/_xet"
    return Answer(
        {"accessToken": token, "exp": expires, "casUrl": url},
        headers={
            "X-Xet-Cas-Url": url,
            "X-Xet-Access-Token": token,
            "X-Xet-Token-Expiration": str(expires),
        },
    )


async def commit(call: Call) -> Answer:
    """POST …/commit/{rev}: NDJSON, read line by line, then landed at once."""
    _refuse_pull_request(call)
    await asyncio.to_thread(_check_writable, call)
    draft = Draft(call.hub.objects)
    async for line in _lines(call.stream()):
        await asyncio.to_thread(draft.feed, line)
    oid = await asyncio.to_thread(
        land, call.hub, call.caller, call.repo_key, call.args["rev"], draft
    )
    type, owner, name = call.repo_key
    url = f"{call.hub.url}/{PREFIX[type]}{owner}/{name}/commit/{oid}"
    return Answer({"success": True, "commitOid": oid, "commitUrl": url, "hookOutput": ""})


def _check_writable(call: Call) -> None:
    with call.hub.database.reading() as connection:
        writable(connection, call.caller, *call.repo_key)


async def _lines(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    buffer = bytearray()
    async for piece in stream:
        buffer += piece
        if b"\n" in piece:
            *whole, rest = buffer.split(b"\n")
            buffer = bytearray(rest)
            for line in whole:
                if line.strip():
                    yield bytes(line)
        if len(buffer) > LINE_LIMIT:
            raise bad_request(f"files over {REGULAR_LIMIT >> 20} MiB must be sent as LFS")
    if buffer.strip():
        yield bytes(buffer)
