"""Plain HTTP to a Hub: the protocol without a client library's help."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from hubtools.localhub.accounts import Accounts, Role
from hubtools.localhub.database import Database


def issue(root: Path, name: str, role: Role = "write") -> str:
    """A token for a user of a Hub directory, also while a server has it open."""
    database = Database(root)
    try:
        return Accounts(database, root).issue(name, role)
    finally:
        database.close()


@dataclass
class Client:
    """HTTP with one token, or none."""

    url: str
    token: str | None

    def __post_init__(self) -> None:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        self.http = httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)

    def create(self, repo: str, **fields: Any) -> httpx.Response:
        owner, name = repo.split("/")
        body = {"name": name, "organization": owner, **fields}
        return self.http.post("/api/repos/create", json=body)

    def commit(
        self, repo: str, *lines: dict[str, Any], parent: str | None = None, rev: str = "main"
    ) -> httpx.Response:
        header = {"summary": "change", "description": "", "parentCommit": parent}
        items = [{"key": "header", "value": header}, *lines]
        body = "\n".join(json.dumps(item) for item in items).encode()
        return self.http.post(f"/api/models/{repo}/commit/{rev}", content=body)

    def head(self, repo: str, rev: str = "main") -> str:
        return str(self.http.get(f"/api/models/{repo}/revision/{rev}").json()["sha"])

    def upload(self, repo: str, data: bytes, oid: str | None = None) -> httpx.Response:
        """LFS batch and single PUT; under a false name when `oid` is given."""
        oid = oid or hashlib.sha256(data).hexdigest()
        batch = self.http.post(
            f"/{repo}.git/info/lfs/objects/batch",
            json={"operation": "upload", "objects": [{"oid": oid, "size": len(data)}]},
        ).json()["objects"][0]
        return self.http.put(
            batch["actions"]["upload"]["href"], content=data, headers={"Authorization": ""}
        )


def regular(path: str, data: bytes) -> dict[str, Any]:
    content = base64.b64encode(data).decode()
    return {"key": "file", "value": {"path": path, "content": content, "encoding": "base64"}}


def lfs(path: str, data: bytes) -> dict[str, Any]:
    oid = hashlib.sha256(data).hexdigest()
    return {"key": "lfsFile", "value": {"path": path, "algo": "sha256", "oid": oid}}
