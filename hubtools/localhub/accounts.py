"""Users, tokens and what they may do.

A token is kept as its sha256 only. The first start makes the user `local`, whose token may write
to every namespace: this Hub is a rehearsal, and the owner names in a manifest are those of the
real one.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hubtools.files import write_atomic
from hubtools.localhub.database import Database
from hubtools.localhub.failures import ApiFailure

ADMIN = "local"
Role = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request; `name` is empty for nobody.

    Args:
        role: what the token allows, whatever its user may do.
        admin: may read and write in every namespace.
    """

    name: str = ""
    role: str = "read"
    admin: bool = False

    def owns(self, namespace: str) -> bool:
        """Whether repos of this namespace are the caller's own."""
        return bool(self.name) and (self.admin or self.name.lower() == namespace.lower())

    def may_write(self, namespace: str) -> bool:
        """Whether this token may change repos of this namespace."""
        return self.role == "write" and self.owns(namespace)


class Accounts:
    """The users of one Hub directory.

    Args:
        root: the Hub's directory; `token` (the admin's) and `secret` are kept there, mode 0600.
    """

    def __init__(self, database: Database, root: Path) -> None:
        self._database = database
        self._secret = _private_file(root / "secret", secrets.token_hex(32)).encode()
        token = _private_file(root / "token", "hf_" + secrets.token_hex(17))
        with database.writing() as connection:
            add_user(connection, ADMIN, admin=True)
            _add_token(connection, ADMIN, token, "write")

    def issue(self, name: str, role: Role = "write") -> str:
        """Make the user if there is none, and a new token for them; returns the token."""
        token = "hf_" + secrets.token_hex(17)
        with self._database.writing() as connection:
            add_user(connection, name)
            _add_token(connection, name, token, role)
        return token

    def caller(self, authorization: str | None) -> Caller:
        """Who an `Authorization` header names.

        Raises:
            ApiFailure: 401 for a token that is unknown here.
        """
        if not authorization:
            return Caller()
        scheme, _, token = authorization.partition(" ")
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT user, role, admin FROM tokens JOIN users ON users.name = tokens.user"
                " WHERE digest = ?",
                (_digest(token.strip()),),
            ).fetchone()
        if scheme.lower() != "bearer" or row is None:
            raise ApiFailure(401, "Invalid credentials in Authorization header")
        return Caller(row["user"], row["role"], bool(row["admin"]))

    def sign(self, text: str) -> str:
        """A keyed digest of `text`, for URLs and tokens that this Hub hands out itself."""
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()

    def storage_token(self, repo: str, write: bool, expires: int) -> str:
        """A token for the xet storage of one repo; it carries its own claims."""
        claims = f"{'write' if write else 'read'}.{expires}.{repo.encode().hex()}"
        return f"xet.{claims}.{self.sign(claims)}"

    def storage_token_ok(self, token: str, write: bool) -> bool:
        """Whether `storage_token` made this token, it is not stale, and it allows `write`."""
        kind, _, rest = token.partition(".")
        claims, _, signature = rest.rpartition(".")
        if kind != "xet" or not hmac.compare_digest(signature, self.sign(claims)):
            return False
        scope, expires, _ = claims.split(".")
        return int(expires) > time.time() and (scope == "write" or not write)


def add_user(
    connection: sqlite3.Connection, name: str, *, kind: str = "user", admin: bool = False
) -> None:
    """Make a user or (kind `org`) an organisation, unless there is one of that name."""
    connection.execute(
        "INSERT OR IGNORE INTO users (name, kind, admin) VALUES (?, ?, ?)", (name, kind, admin)
    )


def _add_token(connection: sqlite3.Connection, user: str, token: str, role: str) -> None:
    connection.execute(
        "INSERT OR IGNORE INTO tokens (digest, user, role, created) VALUES (?, ?, ?, ?)",
        (_digest(token), user, role, int(time.time())),
    )


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _private_file(path: Path, fresh: str) -> str:
    if not path.exists():
        mask = os.umask(0o077)
        try:
            write_atomic(path, fresh.encode())
        finally:
            os.umask(mask)
    return path.read_text().strip()
