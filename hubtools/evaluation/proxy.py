"""A loopback proxy between somebody else's harness and a model server, which keeps every answer.

Harnesses that forget which model answered can thus still be held to it; and the key is added here,
so that the harness and the files it writes never see it.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hubtools.digests import sha256_json
from hubtools.errors import EnvironmentFailure
from hubtools.evaluation.scrub import GONE, scrub
from hubtools.files import disk_error

if TYPE_CHECKING:
    import httpx
    from starlette.requests import Request
    from starlette.responses import Response

SAMPLE = "x-sample"
"""Header by which a harness may say what a call is for; it is recorded and goes no further."""

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
ATTEMPTS = 5
_PROMPTS = ("messages", "prompt", "input")
_PIECE = 1 << 16
_ANSWER = 1800.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@contextmanager
def recording(
    upstream_url: str, *, api_key_env: str, file: Path, pause: float = 1.0
) -> Iterator[str]:
    """Serve a proxy on loopback while the block runs; calls are appended to `file`.

    `file` holds zstd frames, one a call, each one JSON line: `sample`, `path`, `params` (all but
    the prompt), `prompt_sha256`, `status`, `attempts`, `response` (JSON, or the text of a
    stream) and `failure`. `read_calls` reads it.

    Args:
        upstream_url: of the server, up to `/v1`.
        api_key_env: environment variable with the key for it; unset for an open server.
        file: is made, or added to.
        pause: seconds before the first of the retries of 429, 5xx and lost connections.

    Yields:
        The URL to use in its place, up to `/v1`.

    Raises:
        EnvironmentFailure: HT408 a package is missing, HT901 the file cannot be written.
    """
    try:
        import httpx  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise EnvironmentFailure(
            "HT408",
            f"a recording proxy needs the package {error.name}",
            next="pip install 'hf-hubtools[eval]'",
        ) from error
    proxy = _Proxy(upstream_url.rstrip("/"), os.environ.get(api_key_env, ""), file, pause)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            proxy.app(), log_level="critical", access_log=False, timeout_graceful_shutdown=5
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.005)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join()
            proxy.close()
    if proxy.lost is not None:
        raise disk_error(proxy.lost, file) from proxy.lost


def read_calls(file: Path) -> Iterator[dict[str, Any]]:
    """The recorded calls, in the order in which they ended; a last one cut by a kill is dropped."""
    for line, _ in _frames(file):
        yield json.loads(line)


class _Proxy:
    def __init__(self, upstream: str, key: str, file: Path, pause: float) -> None:
        self._upstream = upstream
        self._key = key
        self._pause = pause
        self._idle: list[httpx.AsyncClient] = []
        self.lost: OSError | None = None
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            _cut_to_whole_frames(file)
            self._file = file.open("ab")
        except OSError as error:
            raise disk_error(error, file) from error

    def close(self) -> None:
        self._file.close()

    def app(self) -> Any:
        from starlette.applications import Starlette
        from starlette.routing import Route

        methods = ["GET", "POST"]
        return Starlette(
            routes=[Route("/v1/{path:path}", self._pass, methods=methods)], lifespan=self._lifespan
        )

    @asynccontextmanager
    async def _lifespan(self, app: Any) -> AsyncIterator[None]:
        import httpx

        self._secure = httpx.create_ssl_context()
        yield
        for client in self._idle:
            await client.aclose()

    def _client(self) -> httpx.AsyncClient:
        """One that nobody uses: a pool of many connections takes longer than a request."""
        import httpx

        if self._idle:
            return self._idle.pop()
        away = urlsplit(self._upstream).hostname not in _LOOPBACK
        timeout = httpx.Timeout(_ANSWER, connect=10.0)
        return httpx.AsyncClient(verify=self._secure, timeout=timeout, trust_env=away)

    async def _pass(self, request: Request) -> Response:
        from starlette.responses import JSONResponse, Response, StreamingResponse

        body = await request.body()
        call = _told(request, body)
        client = self._client()
        response, call["attempts"] = await self._send(client, request, body)
        if response is not None and _is_stream(response):
            call["status"] = response.status_code
            lines = self._stream(client, response, call)
            return StreamingResponse(lines, media_type=response.headers["content-type"])
        self._idle.append(client)
        if response is None:
            call |= {"status": None, "response": None, "failure": "the server does not answer"}
            self._keep(call)
            return JSONResponse({"error": {"message": call["failure"]}}, 502)
        failure = "" if response.status_code < 400 else f"HTTP {response.status_code}"
        text = self._clean(response.content.decode("utf-8", "replace"))
        call |= {"status": response.status_code, "failure": failure}
        self._keep(call | {"response": _json_or_text(text)})
        kind = response.headers.get("content-type", "application/json")
        return Response(text, response.status_code, media_type=kind)

    async def _send(
        self, client: httpx.AsyncClient, request: Request, body: bytes
    ) -> tuple[httpx.Response | None, int]:
        """The first answer that is final, or the last one; None when there was no answer at all.

        It is read to its end unless it is a stream.
        """
        import httpx

        url = f"{self._upstream}/{request.path_params['path']}"
        headers = {"content-type": request.headers.get("content-type", "application/json")}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        response: httpx.Response | None = None
        for attempt in range(1, ATTEMPTS + 1):
            if attempt > 1:
                await asyncio.sleep(self._pause * 2.0 ** (attempt - 2))
            sent = client.build_request(
                request.method, url, params=request.query_params, content=body, headers=headers
            )
            try:
                response = await client.send(sent, stream=True)
                if not _is_stream(response):
                    await response.aread()
            except httpx.ReadTimeout:
                return None, attempt
            except httpx.TransportError:
                response = None
                continue
            if response.status_code not in RETRIED:
                break
        return response, attempt

    async def _stream(
        self, client: httpx.AsyncClient, response: httpx.Response, call: dict[str, Any]
    ) -> AsyncIterator[str]:
        """Whole lines as they come, so that a key cannot slip through between two pieces."""
        import httpx

        lines: list[str] = []
        call["failure"] = ""
        try:
            async for line in response.aiter_lines():
                lines.append(self._clean(line))
                yield lines[-1] + "\n"
        except httpx.TransportError as error:
            call["failure"] = f"the stream broke off: {type(error).__name__}"
        finally:
            await response.aclose()
            self._idle.append(client)
            self._keep(call | {"response": "\n".join(lines)})

    def _clean(self, text: str) -> str:
        return text.replace(self._key, GONE) if self._key else text

    def _keep(self, call: Mapping[str, Any]) -> None:
        import zstandard

        if call["method"] != "POST":
            return
        record = {name: value for name, value in call.items() if name != "method"}
        line = json.dumps(scrub(record, [self._key]), sort_keys=True).encode() + b"\n"
        try:
            self._file.write(zstandard.ZstdCompressor().compress(line))
            self._file.flush()
        except OSError as error:
            self.lost = error
            raise


def _told(request: Request, body: bytes) -> dict[str, Any]:
    asked = _json_or_text(body.decode("utf-8", "replace"))
    params = asked if isinstance(asked, dict) else {}
    prompt = next((params[name] for name in _PROMPTS if name in params), None)
    return {
        "method": request.method,
        "sample": request.headers.get(SAMPLE, ""),
        "path": request.path_params["path"],
        "params": {name: value for name, value in params.items() if name not in _PROMPTS},
        "prompt_sha256": sha256_json(prompt),
    }


def _is_stream(response: httpx.Response) -> bool:
    kind = response.headers.get("content-type", "")
    return response.status_code < 400 and kind.startswith("text/event-stream")


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _cut_to_whole_frames(file: Path) -> None:
    """Drop what a kill left of a frame, so that what is added later can be read."""
    if file.is_file():
        os.truncate(file, max((end for _, end in _frames(file)), default=0))


def _frames(file: Path) -> Iterator[tuple[bytes, int]]:
    """Text and end of every whole frame."""
    import zstandard

    data, end = memoryview(file.read_bytes()), 0
    while end < len(data):
        frame, text = zstandard.ZstdDecompressor().decompressobj(), b""
        while not frame.eof and end < len(data):
            piece = data[end : end + _PIECE]
            try:
                text += frame.decompress(piece)
            except zstandard.ZstdError:
                return
            end += len(piece)
        if not frame.eof:
            return
        end -= len(frame.unused_data)
        yield text, end
