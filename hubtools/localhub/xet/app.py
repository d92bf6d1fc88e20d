"""The storage's HTTP face, as far as `hf_xet` needs it.

Newer routes of the protocol (`/v2/…`, upload grants, global deduplication) answer 404, on which the
client takes the ones here. Xorb bytes are handed out by signed, short-lived URLs for one exact byte
range, as on the real Hub, because the client sends no token there.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from hubtools.errors import HubtoolsError
from hubtools.files import disk_error
from hubtools.localhub.objects import ObjectStore
from hubtools.localhub.xet.hashes import raw_of, text_of
from hubtools.localhub.xet.ingest import take_shard, take_xorb
from hubtools.localhub.xet.plan import Fetch, plan_json, plan_range
from hubtools.localhub.xet.refusal import (
    MAX_OVERHEAD,
    MAX_SHARD,
    MAX_XORB,
    Refused,
    bad_query,
    no_access,
    too_large,
    unknown_xorb,
)
from hubtools.localhub.xet.shard import read_shard
from hubtools.localhub.xet.store import XetStore, hash_of_sha256
from hubtools.localhub.xet.xorb import Chunk

TICKET_SECONDS = 3600

_log = logging.getLogger(__name__)
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")

TokenOk = Callable[[str, bool], bool]
"""Whether a token may read (False) or write (True)."""


def cas_app(root: Path, objects: ObjectStore, token_ok: TokenOk) -> Starlette:
    """The xet storage as an application to mount.

    Args:
        root: the Hub's folder; the storage keeps to `<root>/xet/`.
        objects: where every uploaded file is rebuilt, under its sha256.
        token_ok: decides about the bearer tokens the Hub handed out.
    """
    store = XetStore(root)
    handlers = _Handlers(store, objects, root, token_ok)
    return Starlette(
        routes=[
            Route(
                "/v1/xorbs/default/{name}",
                handlers.guarded(handlers.put_xorb, True),
                methods=["POST"],
            ),
            Route("/v1/xorbs/default/{name}", handlers.guarded(handlers.get_xorb, None)),
            Route("/v1/shards", handlers.guarded(handlers.put_shard, True), methods=["POST"]),
            Route("/v1/reconstructions/{name}", handlers.guarded(handlers.get_plan, False)),
            Route("/v1/telemetry", handlers.guarded(handlers.telemetry, None), methods=["POST"]),
        ]
    )


def xet_hash_of(root: Path, sha256: str) -> str | None:
    """The xet hash (hex) under which a file with this sha256 was uploaded; None when it was not."""
    return hash_of_sha256(root, sha256)


_Handler = Callable[[Request], Awaitable[Response]]


class _Handlers:
    def __init__(
        self, store: XetStore, objects: ObjectStore, root: Path, token_ok: TokenOk
    ) -> None:
        self._store = store
        self._objects = objects
        self._root = root
        self._token_ok = token_ok
        self._secret = secrets.token_bytes(32)

    def guarded(self, handler: _Handler, write: bool | None) -> _Handler:
        """`handler` behind the token check (None: it checks for itself), its refusals as JSON."""

        async def answer(request: Request) -> Response:
            try:
                if write is not None:
                    self._authorise(request, write)
                return await handler(request)
            except ClientDisconnect:
                _log.info("the client went away during %s", request.url.path)
                return Response(status_code=400)
            except OSError as error:
                return _failure(disk_error(error, self._root), 507)
            except HubtoolsError as error:
                return _failure(error, error.status if isinstance(error, Refused) else 507)

        return answer

    def _authorise(self, request: Request, write: bool) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._token_ok(token, write):
            return
        if write and scheme.lower() == "bearer" and self._token_ok(token, False):
            raise no_access("this token may not write", 403)
        raise no_access("no valid storage token", 401)

    async def put_xorb(self, request: Request) -> Response:
        name = _name(request)
        with self._store.incoming() as scratch:
            await _receive(request, scratch, MAX_XORB + MAX_OVERHEAD, "a xorb")
            inserted = await run_in_threadpool(take_xorb, self._store, name, scratch)
        return JSONResponse({"was_inserted": inserted})

    async def put_shard(self, request: Request) -> Response:
        with self._store.incoming() as scratch:
            await _receive(request, scratch, MAX_SHARD, "a shard")
            body = scratch.read_bytes()
        shard = read_shard(body)
        new = await run_in_threadpool(take_shard, self._store, self._objects, shard)
        return JSONResponse({"result": int(new)})

    async def get_plan(self, request: Request) -> Response:
        name = _name(request)
        record = await run_in_threadpool(self._store.file, name)
        if record is None:
            raise bad_query(f"no file {text_of(name)}", 404)
        start, end = _byte_range(request.headers.get("range"), record.size)
        plan = await run_in_threadpool(plan_range, record.terms, self._chunks, start, end)
        suffix = f"/v1/reconstructions/{text_of(name)}"
        base = str(request.url.replace(query="")).removesuffix(suffix)
        return JSONResponse(plan_json(plan, lambda fetch: self._url(base, fetch)))

    async def get_xorb(self, request: Request) -> Response:
        name = _name(request)
        expires = request.query_params.get("expires", "")
        wanted = request.headers.get("range", "")
        ticket = request.query_params.get("ticket", "")
        known = hmac.compare_digest(ticket.encode(), self._ticket(name, wanted, expires).encode())
        if not known or int(expires) < time.time():
            raise no_access("no valid ticket for these bytes", 403)
        path = self._store.xorb_path(name)
        return FileResponse(path, media_type="application/octet-stream")

    async def telemetry(self, request: Request) -> Response:
        """Read and forgotten."""
        async for _ in request.stream():
            pass
        return JSONResponse({})

    def _chunks(self, xorb: bytes) -> list[Chunk]:
        chunks = self._store.chunks_of(xorb)
        if chunks is None:
            raise unknown_xorb(text_of(xorb), "")
        return chunks

    def _url(self, base: str, fetch: Fetch) -> str:
        expires = str(int(time.time()) + TICKET_SECONDS)
        ticket = self._ticket(fetch.xorb, f"bytes={fetch.first}-{fetch.last}", expires)
        return f"{base}/v1/xorbs/default/{text_of(fetch.xorb)}?expires={expires}&ticket={ticket}"

    def _ticket(self, xorb: bytes, wanted: str, expires: str) -> str:
        message = b"\n".join([xorb, wanted.encode(), expires.encode()])
        return hmac.digest(self._secret, message, "sha256").hex()


def _failure(error: HubtoolsError, status: int) -> Response:
    # The client shows its user the status alone: the reason must be in the server's log.
    _log.warning("%s; next: %s", error, error.next)
    return JSONResponse({"error": error.to_json()}, status_code=status)


def _name(request: Request) -> bytes:
    try:
        return raw_of(request.path_params["name"])
    except ValueError as error:
        raise bad_query(str(error)) from error


def _byte_range(header: str | None, size: int) -> tuple[int, int]:
    """Start and exclusive end of a Range header; the whole file without one."""
    if header is None:
        return 0, size
    found = _RANGE.fullmatch(header)
    if found is None:
        raise bad_query(f"cannot read the range {header[:80]!r}")
    start = int(found[1])
    end = min(int(found[2]) + 1, size) if found[2] else size
    if start >= end:
        raise bad_query(f"no such range: the file has {size} bytes", 416)
    return start, end


async def _receive(request: Request, scratch: Path, limit: int, what: str) -> None:
    if int(request.headers.get("content-length", "0")) > limit:
        raise too_large(what, limit)
    received = 0
    with scratch.open("wb") as stream:
        async for piece in request.stream():
            received += len(piece)
            if received > limit:
                raise too_large(what, limit)
            stream.write(piece)
