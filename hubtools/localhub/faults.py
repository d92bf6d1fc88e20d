"""Faults a test asks for: refusals, delays, cut connections, a success that the client never hears.

Only a server that was started with a list of faults (even an empty one) has them; then
`POST /_faults` replaces the list.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

Action = Literal["status", "drop-request", "drop-response", "lands-then-status", "delay"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One rule.

    Args:
        method: HTTP method, or `*`.
        path: regular expression, searched in the raw path.
        action: answer `status` at once; cut the connection after `bytes` of the request's or the
            response's body; do the work and then answer `status`; wait `seconds`, then go on.
        nth: the first matching request it applies to, counted from 1.
        times: to how many matching requests from there on.
    """

    method: str
    path: str
    action: Action
    nth: int = 1
    times: int = 1
    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)
    bytes: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """JSON object from which `faults_from_json` makes an equal rule."""
        return asdict(self)


def faults_from_json(data: Iterable[Mapping[str, Any]]) -> list[Fault]:
    """Rules from JSON objects.

    Raises:
        TypeError: a field that no rule has.
    """
    return [Fault(**item) for item in data]


@dataclass
class _Rule:
    """A fault and how many requests it matched so far."""

    fault: Fault
    seen: int = 0


class _Cut(Exception):
    """The connection is to be closed without another byte."""


class FaultInjector:
    """ASGI middleware, outermost, that applies the first rule that is due."""

    def __init__(self, app: ASGIApp, faults: Iterable[Fault]) -> None:
        self._app = app
        self._rules = [_Rule(fault) for fault in faults]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, with the fault that is due or without one."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        raw = scope["raw_path"].decode("latin-1")
        if raw == "/_faults" and scope["method"] == "POST":
            await self._replace(receive, send)
            return
        fault = self._due(scope["method"], raw)
        if fault is None:
            await self._app(scope, receive, send)
        else:
            await _inject(fault, self._app, scope, receive, send)

    def _due(self, method: str, path: str) -> Fault | None:
        due = None
        for rule in self._rules:
            fault = rule.fault
            if fault.method in ("*", method) and re.search(fault.path, path):
                rule.seen += 1
                if due is None and fault.nth <= rule.seen < fault.nth + fault.times:
                    due = fault
        return due

    async def _replace(self, receive: Receive, send: Send) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self._rules = [_Rule(fault) for fault in faults_from_json(json.loads(body))]
        await _answer(send, 200, {})


async def _inject(fault: Fault, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    if fault.action == "status":
        while (await receive()).get("more_body", False):
            pass  # a client that is still sending would see a broken pipe instead of the status
        await _answer(send, fault.status, fault.headers)
    elif fault.action == "delay":
        await asyncio.sleep(fault.seconds)
        await app(scope, receive, send)
    elif fault.action == "lands-then-status":
        await app(scope, receive, _nowhere)
        await _answer(send, fault.status, fault.headers)
    else:
        await _cut(fault, app, scope, receive, send)


async def _cut(fault: Fault, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Let `fault.bytes` of one direction through, then reset the connection."""
    transport: Any = getattr(send, "__self__").transport  # noqa: B009  (uvicorn's request cycle)
    left = fault.bytes

    async def receive_some() -> Message:
        nonlocal left
        message = await receive()
        if fault.action == "drop-request" and message["type"] == "http.request":
            body = message.get("body", b"")
            if len(body) >= left:
                transport.abort()
                return {"type": "http.disconnect"}
            left -= len(body)
        return message

    async def send_some(message: Message) -> None:
        nonlocal left
        if fault.action == "drop-response" and message["type"] == "http.response.body":
            body = message.get("body", b"")
            if len(body) >= left:
                await send({**message, "body": body[:left], "more_body": True})
                await asyncio.sleep(0.05)  # let what was sent leave before the reset
                transport.abort()
                raise _Cut
            left -= len(body)
        await send(message)

    try:
        await app(scope, receive_some, send_some)
    except _Cut:
        return


async def _nowhere(message: Message) -> None:
    """A response that nobody gets."""


async def _answer(send: Send, status: int, headers: Mapping[str, str]) -> None:
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    pairs += [(b"content-type", b"application/json"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": b"{}"})
