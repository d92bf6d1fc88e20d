"""The web application: from a request to an endpoint, from its answer or failure to a response."""

from __future__ import annotations

import asyncio
import errno
import inspect
import logging
import secrets
import sqlite3
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs

from hubtools.localhub.accounts import Caller
from hubtools.localhub.failures import ApiFailure
from hubtools.localhub.objects import ObjectError
from hubtools.localhub.routes import find_route
from hubtools.localhub.state import Answer, Call, Hub

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

BODY_LIMIT = 64 << 20

_log = logging.getLogger(__name__)


def build_app(hub: Hub) -> Starlette:
    """The Hub as an ASGI application; xet storage is mounted at `/_xet` when the Hub has it."""
    from starlette.applications import Starlette
    from starlette.routing import Mount

    mounts = []
    if hub.xet:
        from hubtools.localhub.xet.app import cas_app

        storage = cas_app(hub.root, hub.objects, hub.accounts.storage_token_ok)
        mounts.append(Mount("/_xet", app=storage))
    return Starlette(routes=[*mounts, Mount("/", app=_Api(hub))])


class _Api:
    """Everything but xet storage."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.requests import ClientDisconnect, Request

        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = _response(await self._answer(request))
        except ApiFailure as failure:
            response = _failed(failure)
        except ObjectError as error:
            response = _failed(ApiFailure(400, str(error)))
        except ClientDisconnect:
            return
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            response = _failed(_storage_failure(error, full))
        except sqlite3.OperationalError as error:
            full = error.sqlite_errorcode == sqlite3.SQLITE_FULL
            response = _failed(_storage_failure(error, full))
        except Exception:
            _log.exception("%s %s", scope["method"], scope["path"])
            response = _failed(ApiFailure(500, "internal error: see the server's log"))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Answer:
        raw = cast("bytes", request.scope.get("raw_path") or request.scope["path"].encode())
        route, args = find_route(request.method, raw.decode("latin-1"))
        if route is None:
            if "allow" in args:
                raise ApiFailure(405, f"{request.method} is not allowed here")
            raise ApiFailure(404, "this embedded Hub has no such page")
        signed = route.template.startswith("/_lfs/")
        headers = {name.lower(): value for name, value in request.headers.items()}
        caller = Caller()
        if not signed:
            authorization = headers.get("authorization")
            caller = await asyncio.to_thread(self._hub.accounts.caller, authorization)
        streams = inspect.iscoroutinefunction(route.endpoint)
        body = b"" if streams else await _whole_body(request)
        query = parse_qs(request.url.query, keep_blank_values=True)
        call = Call(self._hub, request.method, caller, args, query, headers, request.stream, body)
        if streams:
            return cast("Answer", await cast("Any", route.endpoint)(call))
        return cast("Answer", await asyncio.to_thread(cast("Any", route.endpoint), call))


async def _whole_body(request: Request) -> bytes:
    body = bytearray()
    stream: AsyncIterator[bytes] = request.stream()
    async for piece in stream:
        body += piece
        if len(body) > BODY_LIMIT:
            raise ApiFailure(413, f"request bodies end at {BODY_LIMIT >> 20} MiB here")
    return bytes(body)


def _response(answer: Answer) -> Response:
    from starlette.responses import FileResponse, JSONResponse, Response

    headers = dict(answer.headers)
    if answer.file is not None:
        response = FileResponse(answer.file, headers=headers, media_type=answer.media_type)
        response.chunk_size = 1 << 20
        return response
    if answer.text is not None:
        return Response(answer.text, answer.status, headers, answer.media_type)
    return JSONResponse(answer.json, answer.status, headers, answer.media_type)


def _failed(failure: ApiFailure) -> Response:
    from starlette.responses import JSONResponse

    line = " ".join(failure.message.encode("ascii", "backslashreplace").decode().split())
    headers = {
        "X-Error-Message": line,
        "X-Request-Id": f"local-{secrets.token_hex(8)}",
        **failure.headers,
    }
    if failure.code:
        headers["X-Error-Code"] = failure.code
    if failure.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": failure.message, **failure.body}, failure.status, headers)


def _storage_failure(error: OSError | sqlite3.Error, full: bool) -> ApiFailure:
    _log.error("storage: %s", error)
    if full:
        return ApiFailure(507, "the embedded Hub's disk is full")
    return ApiFailure(500, "the embedded Hub cannot use its disk: see the server's log")
