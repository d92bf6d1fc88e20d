"""Repos: their names, who may see and change them, creating, moving and deleting them."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from typing import Any

from hubtools.digests import git_blob_sha1
from hubtools.localhub.accounts import Caller, add_user
from hubtools.localhub.failures import ApiFailure, bad_request
from hubtools.localhub.history import Blob, add_commit, remember_blob
from hubtools.localhub.state import Hub, text_of
from hubtools.localhub.vocabulary import LFS_PATTERNS

PREFIX = {"model": "", "dataset": "datasets/", "space": "spaces/"}
_GATES = {"auto": "auto", "manual": "manual", False: ""}
_RESERVED = frozenset({"api", "models", "datasets", "spaces", "collections", "_lfs", "_xet"})
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,96}")


@dataclass(frozen=True, slots=True)
class Repo:
    """One row of the repos table."""

    id: int
    type: str
    owner: str
    name: str
    private: bool
    gated: str
    sdk: str
    created: int

    @property
    def full_name(self) -> str:
        """`owner/name`."""
        return f"{self.owner}/{self.name}"

    @property
    def api(self) -> str:
        """Path below the endpoint at which the API knows it: `/api/models/owner/name`."""
        return f"/api/{self.type}s/{self.full_name}"

    @property
    def page(self) -> str:
        """Path of its page and of its files: `/datasets/owner/name`."""
        return f"/{PREFIX[self.type]}{self.full_name}"


def check_name(name: str, what: str) -> None:
    """Refuse a namespace or repo name that the Hub would refuse.

    Raises:
        ApiFailure: 400 with the rule.
    """
    fine = (
        _NAME.fullmatch(name)
        and name[0] not in "-."
        and name[-1] not in "-."
        and "--" not in name
        and ".." not in name
        and not name.endswith(".git")
        and not (what == "namespace" and name.lower() in _RESERVED)
    )
    if not fine:
        raise bad_request(
            f"{what} {name[:120]!r} is not allowed: 1 to 96 of A-Z a-z 0-9 _ . -, not starting or"
            " ending with - or ., without -- or .., not ending with .git"
        )


def find(connection: sqlite3.Connection, type: str, owner: str, name: str) -> Repo | None:
    """The repo of this name, whoever asks."""
    row = connection.execute(
        "SELECT * FROM repos WHERE type = ? AND owner = ? AND name = ?", (type, owner, name)
    ).fetchone()
    return _repo(row) if row else None


def _repo(row: sqlite3.Row) -> Repo:
    return Repo(
        row["id"],
        row["type"],
        row["owner"],
        row["name"],
        bool(row["private"]),
        row["gated"],
        row["sdk"],
        row["created"],
    )


def readable(
    connection: sqlite3.Connection, caller: Caller, type: str, owner: str, name: str
) -> Repo:
    """The repo, if the caller may know of it.

    Raises:
        ApiFailure: 401 to nobody, 404 to anybody else: a private repo looks like none.
    """
    repo = find(connection, type, owner, name)
    if repo is None or (repo.private and not caller.owns(repo.owner)):
        status = 404 if caller.name else 401
        raise ApiFailure(status, f"no {type} {owner}/{name} here", code="RepoNotFound")
    return repo


def writable(
    connection: sqlite3.Connection, caller: Caller, type: str, owner: str, name: str
) -> Repo:
    """The repo, if the caller may change it.

    Raises:
        ApiFailure: as `readable`, and 401 or 403 when it may only be read.
    """
    repo = readable(connection, caller, type, owner, name)
    _require_write(caller, repo.owner)
    return repo


def _require_write(caller: Caller, namespace: str) -> None:
    if not caller.name:
        raise ApiFailure(401, "log in with a token that has the write role")
    if not caller.may_write(namespace):
        raise ApiFailure(
            403, f"token of {caller.name} (role {caller.role}) may not write to {namespace}"
        )


def check_gate(caller: Caller, repo: Repo) -> None:
    """Refuse the content of a gated repo to those who were not let in (only its owner is, here).

    Raises:
        ApiFailure: 401 or 403 with the code GatedRepo.
    """
    if repo.gated and not caller.owns(repo.owner):
        raise ApiFailure(
            403 if caller.name else 401,
            f"access to {repo.full_name} is gated ({repo.gated})",
            code="GatedRepo",
        )


def create(hub: Hub, caller: Caller, asked: dict[str, Any]) -> tuple[Repo, bool]:
    """Make a repo with its first commit (`.gitattributes`), as the Hub does.

    Returns:
        The repo, and False when it was there already (then nothing was changed).

    Raises:
        ApiFailure: 400 for a bad name, 401 or 403 without the right to.
    """
    owner, name = text_of(asked, "organization", caller.name), text_of(asked, "name")
    if "/" in name:
        owner, _, name = name.partition("/")
    type = text_of(asked, "type", "model")
    if type not in PREFIX:
        raise bad_request(f"unknown repo type {type!r}")
    _require_write(caller, owner)
    check_name(owner, "namespace")
    check_name(name, "repo name")
    private = is_private(asked.get("visibility", asked.get("private", False)))
    attributes = "".join(f"{p} filter=lfs diff=lfs merge=lfs -text\n" for p in LFS_PATTERNS)
    data = attributes.encode()
    blob = Blob(git_blob_sha1(data), hub.objects.put(data), len(data), False)
    with hub.database.writing() as connection:
        known = find(connection, type, owner, name)
        if known is not None:
            return known, False
        add_user(connection, owner, kind="org")
        now = hub.clock()
        row = connection.execute(
            "INSERT INTO repos (type, owner, name, private, sdk, created)"
            " VALUES (?, ?, ?, ?, ?, ?) RETURNING id",
            (type, owner, name, private, text_of(asked, "sdk"), now),
        ).fetchone()
        remember_blob(connection, blob)
        files = {".gitattributes": blob.oid}
        add_commit(connection, row["id"], "main", None, files, caller.name, now, "initial commit")
        repo = find(connection, type, owner, name)
    assert repo is not None
    return repo, True


def is_private(value: Any) -> bool:
    """What `visibility` (or the older boolean `private`) asks for.

    Raises:
        ApiFailure: 400 on any other word, so that no typo makes a repo public.
    """
    words: dict[Any, bool] = {"public": False, "private": True, True: True, False: False}
    if not isinstance(value, (str, bool)) or value not in words:
        raise bad_request(f"unknown visibility {value!r}: public or private")
    return words[value]


def change_settings(
    connection: sqlite3.Connection, repo: Repo, asked: dict[str, Any]
) -> dict[str, Any]:
    """Set visibility and gate; other settings are refused rather than ignored.

    Raises:
        ApiFailure: 400 for an unknown setting or value.
    """
    unknown = asked.keys() - {"visibility", "private", "gated"}
    if unknown:
        raise bad_request(f"settings not offered here: {', '.join(sorted(unknown))}")
    private, gated = repo.private, repo.gated
    for name in ("visibility", "private"):
        if name in asked:
            private = is_private(asked[name])
    if "gated" in asked:
        if not isinstance(asked["gated"], (str, bool)) or asked["gated"] not in _GATES:
            raise bad_request(f"gated must be auto, manual or false, not {asked['gated']!r}")
        gated = _GATES[asked["gated"]]
    connection.execute(
        "UPDATE repos SET private = ?, gated = ? WHERE id = ?", (private, gated, repo.id)
    )
    return {"private": private, "gated": gated or False}


def move(connection: sqlite3.Connection, caller: Caller, asked: dict[str, Any]) -> Repo:
    """Rename a repo or give it to another namespace.

    Raises:
        ApiFailure: 409 when the new name is taken.
    """
    type = text_of(asked, "type", "model")
    source, target = text_of(asked, "fromRepo"), text_of(asked, "toRepo")
    owner, _, name = source.partition("/")
    repo = writable(connection, caller, type, owner, name)
    owner, _, name = target.partition("/")
    check_name(owner, "namespace")
    check_name(name, "repo name")
    _require_write(caller, owner)
    there = find(connection, type, owner, name)
    if there is not None and there.id != repo.id:
        raise ApiFailure(409, f"{target} exists already")
    add_user(connection, owner, kind="org")
    connection.execute("UPDATE repos SET owner = ?, name = ? WHERE id = ?", (owner, name, repo.id))
    moved = find(connection, type, owner, name)
    assert moved is not None
    return moved


def listed(connection: sqlite3.Connection, caller: Caller, type: str) -> list[Repo]:
    """Every repo of a type that the caller may see, newest first."""
    rows = connection.execute(
        "SELECT * FROM repos WHERE type = ? ORDER BY created DESC, id DESC", (type,)
    )
    return [repo for repo in map(_repo, rows) if not repo.private or caller.owns(repo.owner)]
