"""What every endpoint of one running Hub shares, and one request as they see it."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubtools.localhub.accounts import Accounts, Caller
from hubtools.localhub.database import Database
from hubtools.localhub.failures import bad_request
from hubtools.localhub.objects import ObjectStore

LFS_PART = 16 << 20
TYPES = {"models": "model", "datasets": "dataset", "spaces": "space"}


def _now() -> int:
    return int(time.time())


def _no_xet_hash(sha256: str) -> str | None:
    return None


@dataclass(frozen=True)
class Hub:
    """One Hub directory and how it is served.

    Args:
        url: what clients use as endpoint, without a final slash.
        xet: whether xet storage is offered.
        xet_hash: sha256 → xet hash of files that came in through xet storage.
        lfs_part: LFS uploads larger than this many bytes are sent in parts of it.
        clock: seconds since 1970; commits carry it, so fixing it fixes every id.
    """

    root: Path
    url: str
    objects: ObjectStore
    database: Database
    accounts: Accounts
    xet: bool = True
    xet_hash: Callable[[str], str | None] = _no_xet_hash
    lfs_part: int = LFS_PART
    clock: Callable[[], int] = _now


def open_hub(root: Path, url: str, **options: Any) -> Hub:
    """Open (or start) a Hub directory; `options` are further fields of `Hub`."""
    root.mkdir(parents=True, exist_ok=True)
    database = Database(root)
    return Hub(root, url, ObjectStore(root), database, Accounts(database, root), **options)


@dataclass(frozen=True)
class Call:
    """One request, free of any web framework.

    Args:
        args: the path parts its route names, decoded.
        query: name → values, in the order given.
        headers: name in lower case → value.
        stream: the body in pieces, for the endpoints that take it so; `body` is empty then.
    """

    hub: Hub
    method: str
    caller: Caller
    args: Mapping[str, str]
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    stream: Callable[[], AsyncIterator[bytes]]
    body: bytes = field(default=b"", repr=False)

    def json(self) -> dict[str, Any]:
        """The body as a JSON object.

        Raises:
            ApiFailure: 400 when it is none.
        """
        try:
            value = json.loads(self.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise bad_request(f"the request body is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise bad_request("the request body is not a JSON object")
        return value

    def flag(self, name: str) -> bool:
        """A query parameter that is switched on (`true`, `True`, `1`)."""
        return self.parameter(name).lower() in ("true", "1")

    def parameter(self, name: str, default: str = "") -> str:
        """A query parameter; the last one when it is given more than once."""
        return self.query.get(name, [default])[-1]

    def number(self, name: str, default: int, most: int) -> int:
        """A query parameter that is a count, at most `most`.

        Raises:
            ApiFailure: 400 when it is none.
        """
        text = self.parameter(name, str(default))
        if not text.isascii() or not text.isdigit() or len(text) > 12:
            raise bad_request(f"{name} must be a number, not {text[:40]!r}")
        return min(int(text), most)

    @property
    def repo_key(self) -> tuple[str, str, str]:
        """Type, owner and name of the repo that the path names."""
        kind = self.args.get("types") or "models"
        return TYPES[kind], self.args["owner"], self.args["name"]


def text_of(data: Mapping[str, Any], name: str, default: str = "") -> str:
    """A JSON field that is text; `default` when it is missing or null.

    Raises:
        ApiFailure: 400 when it is something else.
    """
    value = data.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise bad_request(f"{name} must be text, not {str(value)[:40]!r}")
    return value


def objects_of(data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """A JSON field that is a list of objects; empty when it is missing.

    Raises:
        ApiFailure: 400 when it is something else.
    """
    value = data.get(name) or []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise bad_request(f"{name} must be a list of objects")
    return value


@dataclass(frozen=True)
class Answer:
    """What an endpoint answers: JSON, text, or (when `file` is set) a file with ranges."""

    json: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None
    file: Path | None = None
    media_type: str | None = None
