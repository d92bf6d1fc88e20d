"""Answers through any OpenAI-compatible server: vLLM, llama.cpp, a paid service."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from eval_harness.addresses import Credentials, is_server, public_url, split_user
from eval_harness.chat import Reply, Request
from eval_harness.chat_template import ChatTemplate
from eval_harness.errors import HarnessError

if TYPE_CHECKING:
    import aiohttp

__all__ = ["OpenAIBackend", "public_url"]

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
FATAL = frozenset({401, 403, 404, 405})
ATTEMPTS = 5
LONGEST_PAUSE = 30.0
LARGEST = 64 << 20
"""Bytes of one response."""
_TOO_LONG = re.compile(r"context.{0,20}length|maximum context|too long|max_model_len", re.I)


class _Response(NamedTuple):
    status: int
    body: bytes
    retry_after: str


class OpenAIBackend:
    """A served model.

    Busy and broken answers (408, 429, 5xx), time-outs and lost connections are retried with
    growing pauses, or as long as the server's `Retry-After` asks for, up to 30 s. A call that still
    fails is a failed reply. A refused key or a wrong address ends the run, and so does a server
    that is gone: it never answered, or was not to be reached for as many calls in a row as there
    are in flight.

    Requests with tools are rendered here with the checkpoint's chat template and sent to
    `/completions`, where no parser touches the text.

    Args:
        base_url: up to and including `/v1`.
        model: name to ask for. What the server reports is kept beside it.
        api_key_env: environment variable that holds the key; may be unset for open servers.
        concurrency: samples in flight at once.
        timeout: seconds for one answer, from the first byte sent to the last one received.
        pause: seconds before the first retry; doubles each time.
        template: for requests with tools.
        keeps_stop: the server knows `include_stop_str_in_output` (vLLM).
        trust_env: use the environment's proxies; not for a server on this machine.

    Raises:
        HarnessError: `missing_package`.
    """

    lockstep = False

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key_env: str = "OPENAI_API_KEY",
        concurrency: int = 32,
        timeout: float = 600.0,
        pause: float = 1.0,
        template: ChatTemplate | None = None,
        keeps_stop: bool = False,
        trust_env: bool = True,
    ) -> None:
        try:
            import aiohttp  # httpx takes 5 ms of CPU a request at 64 in flight, this 0.3
        except ImportError as error:
            raise HarnessError(
                "missing_package",
                "asking a server needs the package aiohttp",
                next="pip install 'hf-hubtools[eval]'",
            ) from error
        self._aiohttp = aiohttp
        self.concurrency = concurrency
        self._model, self._url = model, base_url.rstrip("/")
        self._pause, self._template, self._keeps_stop = pause, template, keeps_stop
        self._credentials = Credentials(self._url, api_key_env)
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=10)
        self._trust_env = trust_env
        self._client: aiohttp.ClientSession | None = None
        self._reached, self._lost = False, 0

    def describe(self) -> dict[str, Any]:
        """Address without credentials and the model name asked for."""
        return {"backend": "openai", "endpoint": public_url(self._url), "requested": self._model}

    async def ask_all(self, requests: Sequence[Request]) -> list[Reply]:
        """One reply per request.

        Raises:
            HarnessError: `unreachable`, `refused`, or `bad_suite` for tools without a template.
        """
        if len(requests) == 1:
            return [await self._ask(requests[0])]
        return list(await asyncio.gather(*map(self._ask, requests)))

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _ask(self, request: Request) -> Reply:
        path, body = self._call(request)
        response, lost = await self._post(path, body)
        if response is None:
            return self._unreached(lost)
        self._reached, self._lost = True, 0
        if response.status in FATAL:
            raise self._refused(response)
        if response.status != 200:
            return self._failed(response)
        if len(response.body) > LARGEST:
            why = f"the response is larger than {LARGEST >> 20} MiB"
            return Reply(None, failure=why, failure_kind="refused")
        try:
            data = self._credentials.clean(json.loads(response.body))
        except (ValueError, RecursionError):
            return Reply(None, failure="the response is not JSON", failure_kind="infrastructure")
        return _reply(data)

    def _call(self, request: Request) -> tuple[str, dict[str, Any]]:
        """Path and body."""
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
        }
        if request.top_p != 1:
            body["top_p"] = request.top_p
        if request.stop:
            body["stop"] = list(request.stop)
            if self._keeps_stop:
                body["include_stop_str_in_output"] = True
        if not request.tools:
            return "chat/completions", {**body, "messages": list(request.messages)}
        if self._template is None:
            raise HarnessError(
                "bad_suite",
                "the suite has tools, and no chat template is known to show them with",
                where=public_url(self._url),
                next="name the server's checkpoint folder, or a template with --tool-template FILE",
            )
        prompt = self._template.render(request.messages, request.tools)
        return "completions", {**body, "prompt": prompt, "add_special_tokens": False}

    async def _post(
        self, path: str, body: dict[str, Any]
    ) -> tuple[_Response | None, Exception | None]:
        """The last response after retries; without any response the last error."""
        data = json.dumps(body).encode()
        lost: Exception | None = None
        response: _Response | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(_wait(response, self._pause * 2 ** (attempt - 1)))
            try:
                response = await self._once(path, data)
            except self._aiohttp.InvalidURL as error:
                return None, error
            except (self._aiohttp.ClientError, TimeoutError) as error:
                lost, response = error, None
            else:
                if response.status not in RETRIED:
                    break
        return response, lost

    async def _once(self, path: str, data: bytes) -> _Response:
        if self._client is None:
            self._client = self._opened()
        url = f"{split_user(self._url)[0]}/{path}"
        async with self._client.post(url, data=data, allow_redirects=False) as response:
            after = response.headers.get("retry-after", "")
            body = bytearray()
            async for piece in response.content.iter_any():
                body += piece
                if len(body) > LARGEST:
                    break
            return _Response(response.status, bytes(body), after)

    def _opened(self) -> aiohttp.ClientSession:
        headers = {"Content-Type": "application/json"}
        if not is_server(self._url):
            raise HarnessError(
                "unreachable",
                "the server does not answer: that is no address of one",
                where=public_url(self._url),
                next="give it as http://HOST:PORT/v1",
            )
        if not self._credentials.sendable:
            raise HarnessError(
                "refused",
                "the key has characters that no header can hold",
                where=public_url(self._url),
                next="set the variable that --api-key-env names to the key alone",
            )
        headers |= self._credentials.headers()
        return self._aiohttp.ClientSession(
            headers=headers,
            timeout=self._timeout,
            connector=self._aiohttp.TCPConnector(limit=self.concurrency),
            trust_env=self._trust_env,
        )

    def _unreached(self, lost: Exception | None) -> Reply:
        """A failed reply, unless nobody is there any more."""
        self._lost += 1
        slow = isinstance(lost, TimeoutError) and not isinstance(
            lost, self._aiohttp.ConnectionTimeoutError
        )
        if not slow and (not self._reached or self._lost >= self.concurrency):
            raise HarnessError(
                "unreachable",
                f"the server does not answer: {type(lost).__name__}",
                where=public_url(self._url),
                next="start the server (or mend the address), then run the same command again",
            ) from lost
        why = "no answer in time" if slow else f"the connection was lost: {type(lost).__name__}"
        return Reply(None, failure=why, failure_kind="infrastructure")

    def _failed(self, response: _Response) -> Reply:
        words, status = self._words(response), response.status
        kind = "infrastructure" if status in RETRIED or status >= 500 else "refused"
        if kind == "refused" and _TOO_LONG.search(words):
            kind = "context"
        return Reply(None, failure=f"HTTP {status}: {words}", failure_kind=kind)

    def _refused(self, response: _Response) -> HarnessError:
        return HarnessError(
            "refused" if response.status in (401, 403) else "unreachable",
            f"the server says HTTP {response.status}: {self._words(response)}",
            where=public_url(self._url),
            next="check the key, the model's name and that the address ends in /v1",
        )

    def _words(self, response: _Response) -> str:
        """The start of an error body, without credentials should the server repeat them."""
        text = " ".join(response.body[:100_000].decode(errors="replace").split())
        return self._credentials.hidden(text)[:200]


def _reply(data: Any) -> Reply:
    raw = data if isinstance(data, dict) else {"response": data}
    try:
        choice = data["choices"][0]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        finish = str(choice.get("finish_reason") or "")
    except (AttributeError, IndexError, KeyError, TypeError):
        why = "the response has no choices[0].message.content"
        return Reply(None, failure=why, raw=raw, failure_kind="infrastructure")
    usage = data.get("usage")
    used = usage if isinstance(usage, dict) else {}
    counts = {side: used.get(f"{side}_tokens") for side in ("prompt", "completion")}
    whole = {s: n if isinstance(n, int) else None for s, n in counts.items()}
    if not isinstance(text, str):
        # Reasoning that reached its limit: kept in `raw`, and never an empty answer scored 0.
        why = f"content is {type(text).__name__}, not text"
        return Reply(None, finish, failure=why, raw=raw, failure_kind="no_text", **_sides(whole))
    return Reply(text, finish, raw=raw, **_sides(whole))


def _sides(counts: dict[str, int | None]) -> dict[str, Any]:
    return {f"{side}_tokens": count for side, count in counts.items()}


def _wait(response: _Response | None, pause: float) -> float:
    asked = "" if response is None else response.retry_after
    return min(float(asked), LONGEST_PAUSE) if asked.isdecimal() else pause
