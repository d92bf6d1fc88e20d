"""LFS uploads: the batch answer, single and multipart PUT, verification.

The client sends no token with a PUT, so the URLs carry their own proof: a keyed digest over the
object id, the size, the upload's name and the hour it ends.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from hubtools.localhub.failures import ApiFailure, bad_request
from hubtools.localhub.objects import ObjectError
from hubtools.localhub.repos import writable
from hubtools.localhub.state import Answer, Call, Hub, objects_of

_LIFETIME = 24 * 3600
_MAX_PARTS = 10_000
_BUFFER = 1 << 20


def batch(call: Call) -> Answer:
    """POST …/info/lfs/objects/batch: where to send each object; nothing for those here."""
    asked = call.json()
    with call.hub.database.reading() as connection:
        writable(connection, call.caller, *call.repo_key)
    if asked.get("operation") != "upload":
        raise ApiFailure(422, "only uploads are offered here: files are read at their resolve URL")
    multipart = "multipart" in (asked.get("transfers") or [])
    answers = [_answer(call.hub, item, multipart) for item in objects_of(asked, "objects")]
    return Answer(
        {"transfer": "multipart" if multipart else "basic", "objects": answers},
        media_type="application/vnd.git-lfs+json",
    )


def _answer(hub: Hub, item: dict[str, Any], multipart: bool) -> dict[str, Any]:
    oid, size = item.get("oid"), item.get("size")
    if not isinstance(oid, str) or not re.fullmatch(r"[0-9a-f]{64}", oid):
        return {"oid": oid, "size": size, "error": {"code": 422, "message": "oid is no sha256"}}
    if not isinstance(size, int) or size < 0:
        return {"oid": oid, "size": size, "error": {"code": 422, "message": "size is no size"}}
    if hub.objects.has(oid):
        return {"oid": oid, "size": size}
    query = _signed(hub, oid, size, secrets.token_hex(8), int(time.time()) + _LIFETIME)
    header: dict[str, str] = {}
    if multipart and size > hub.lfs_part:
        chunk = max(hub.lfs_part, -(-size // _MAX_PARTS))
        header["chunk_size"] = str(chunk)
        for number in range(1, -(-size // chunk) + 1):
            offset = (number - 1) * chunk
            header[str(number)] = f"{hub.url}/_lfs/{oid}/part/{offset}?{query}"
    return {
        "oid": oid,
        "size": size,
        "authenticated": True,
        "actions": {
            "upload": {"href": f"{hub.url}/_lfs/{oid}?{query}", "header": header},
            "verify": {"href": f"{hub.url}/_lfs/{oid}/verify?{query}", "header": {}},
        },
    }


def _signed(hub: Hub, oid: str, size: int, upload: str, expires: int) -> str:
    signature = hub.accounts.sign(f"{oid} {size} {upload} {expires}")
    return urlencode({"size": size, "upload": upload, "expires": expires, "sig": signature})


def _claims(call: Call) -> tuple[str, int, str]:
    oid, upload = call.args["oid"], call.parameter("upload")
    try:
        size, expires = int(call.parameter("size")), int(call.parameter("expires"))
    except ValueError as error:
        raise ApiFailure(403, "this upload URL was not made here") from error
    signature = call.hub.accounts.sign(f"{oid} {size} {upload} {expires}")
    if not hmac.compare_digest(signature, call.parameter("sig")) or expires < time.time():
        raise ApiFailure(403, "this upload URL was not made here, or it is too old")
    return oid, size, upload


async def put_whole(call: Call) -> Answer:
    """PUT the whole object; refused when its bytes are not those its name promises."""
    oid, size, _ = _claims(call)
    writer = call.hub.objects.begin()
    try:
        await _receive(call, size, writer.write)
        await asyncio.to_thread(writer.finish, oid)
    except ObjectError as error:
        raise bad_request(str(error)) from error
    except BaseException:
        writer.abort()
        raise
    return Answer(headers={"ETag": f'"{oid}"'})


async def put_part(call: Call) -> Answer:
    """PUT one part of a multipart upload, at the offset its URL names."""
    oid, size, upload = _claims(call)
    offset = int(call.args["offset"])
    if not 0 <= offset < size:
        raise bad_request(f"offset {offset} is outside an object of {size} bytes")
    path = call.hub.objects.scratch(upload)
    path.touch()
    with path.open("rb+") as stream:
        stream.seek(offset)
        await _receive(call, size - offset, stream.write)
    return Answer(headers={"ETag": f'"{oid[:16]}-{offset}"'})


def complete(call: Call) -> Answer:
    """POST after the last part: the whole is read once and must match its name."""
    oid, _, upload = _claims(call)
    path = call.hub.objects.scratch(upload)
    if call.hub.objects.has(oid):
        path.unlink(missing_ok=True)
    else:
        if not path.is_file():
            raise bad_request("no part of this upload has arrived")
        try:
            call.hub.objects.adopt(path, oid)
        except ObjectError as error:
            raise bad_request(str(error)) from error
    return Answer({"success": True})


def verify(call: Call) -> Answer:
    """POST …/verify: the object is here with the size the client thinks it has."""
    oid, size, _ = _claims(call)
    if not call.hub.objects.has(oid) or call.hub.objects.size(oid) != size:
        raise ApiFailure(404, f"object {oid} of {size} bytes is not here")
    return Answer({"success": True})


async def _receive(call: Call, limit: int, write: Callable[[bytes], Any]) -> None:
    """Hand the request body to `write` in pieces of about 1 MiB, off the event loop."""
    buffer = bytearray()
    received = 0
    async for piece in call.stream():
        received += len(piece)
        if received > limit:
            raise bad_request(f"more than the {limit} bytes announced")
        buffer += piece
        if len(buffer) >= _BUFFER:
            await asyncio.to_thread(write, bytes(buffer))
            buffer.clear()
    if buffer:
        await asyncio.to_thread(write, bytes(buffer))
