"""A server that answers every chat the same after a pause: `python _stub.py SECONDS`.

It prints its port, answers POST at any path with a chat completion, and GET with the moments
(CLOCK_MONOTONIC) of the first request and the last answer, their number and the sum of the pauses
as they were, which it then forgets.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

TEXT = "The three-letter code of France is FRA."
BODY = json.dumps(
    {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 0,
        "model": "stub",
        "system_fingerprint": "stub-1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": TEXT, "refusal": None},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": {"prompt_tokens": 70, "completion_tokens": 12, "total_tokens": 82},
    }
).encode()


class Moments:
    """When work came and went."""

    def __init__(self) -> None:
        self.first = self.last = self.pauses = 0.0
        self.n = 0

    def told(self) -> bytes:
        """As JSON; then they are forgotten."""
        data = json.dumps(vars(self)).encode()
        vars(self).update(vars(Moments()))
        return data


class Stub(asyncio.Protocol):
    """Just enough HTTP/1.1 with kept connections."""

    def __init__(self, pause: float, moments: Moments) -> None:
        self._pause, self._moments = pause, moments
        self._data = b""
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each whole request after the pause."""
        self._data += data
        while True:
            head, found, rest = self._data.partition(b"\r\n\r\n")
            if not found:
                return
            lower = head.lower()
            at = lower.find(b"content-length:")
            length = int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(rest) < length:
                return
            self._data = rest[length:]
            if head.startswith(b"GET"):
                self._answer(self._moments.told())
                continue
            now = time.monotonic()
            self._moments.first = self._moments.first or now
            self._loop.call_later(self._pause, self._done, now)

    def _done(self, came: float) -> None:
        self._moments.last = time.monotonic()
        self._moments.pauses += self._moments.last - came
        self._moments.n += 1
        self._answer(BODY)

    def _answer(self, body: bytes) -> None:
        if not self._transport.is_closing():
            head = (
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            )
            self._transport.write(head % len(body) + body)


async def main() -> None:
    """Serve until killed."""
    moments = Moments()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Stub(float(sys.argv[1]), moments), "127.0.0.1", 0, backlog=512
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
