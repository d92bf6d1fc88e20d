"""Answers through any OpenAI-compatible server: vLLM, llama.cpp, a paid service."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from eval_harness.chat import Reply, Request
from eval_harness.chat_template import ChatTemplate
from eval_harness.errors import HarnessError

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
FATAL = frozenset({401, 403, 404, 405})
ATTEMPTS = 5
LONGEST_PAUSE = 30.0
_TOO_LONG = re.compile(r"context.{0,20}length|maximum context|too long|max_model_len", re.I)


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
        timeout: seconds for one answer.
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
            import httpx
        except ImportError as error:
            raise HarnessError(
                "missing_package",
                "asking a server needs the package httpx",
                next="pip install 'hf-hubtools[eval]'",
            ) from error
        self._httpx = httpx
        self.concurrency = concurrency
        self._model, self._url = model, base_url.rstrip("/")
        self._pause, self._template, self._keeps_stop = pause, template, keeps_stop
        self._key = os.environ.get(api_key_env, "")
        # A client of its own for each call in flight: httpx's pool looks at every pair of its
        # connections for every request, 5 ms of CPU at 64 of them.
        self._new_client = partial(
            httpx.AsyncClient,
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx.Timeout(timeout, connect=10.0),
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1),
            verify=httpx.create_ssl_context(trust_env=trust_env),
            trust_env=trust_env,
        )
        self._idle: list[httpx.AsyncClient] = []
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
        while self._idle:
            await self._idle.pop().aclose()

    async def _ask(self, request: Request) -> Reply:
        path, body = self._call(request)
        response, lost = await self._post(path, body)
        if response is None:
            return self._unreached(lost)
        self._reached, self._lost = True, 0
        if response.status_code in FATAL:
            raise self._refused(response)
        if response.status_code != 200:
            return self._failed(response)
        try:
            data = response.json()
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

    async def _post(self, path: str, body: dict[str, Any]) -> tuple[Any, Exception | None]:
        """The last response after retries; without any response the last error."""
        client = self._idle.pop() if self._idle else self._new_client()
        try:
            return await self._posted(client, f"{self._url}/{path}", body)
        finally:
            self._idle.append(client)

    async def _posted(
        self, client: Any, url: str, body: dict[str, Any]
    ) -> tuple[Any, Exception | None]:
        lost: Exception | None = None
        response: Any = None
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(_wait(response, self._pause * 2 ** (attempt - 1)))
            try:
                response = await client.post(url, json=body)
            except (self._httpx.TransportError, self._httpx.DecodingError) as error:
                lost, response = error, None
            except self._httpx.InvalidURL as error:
                return None, error
            else:
                if response.status_code not in RETRIED:
                    break
        return response, lost

    def _unreached(self, lost: Exception | None) -> Reply:
        """A failed reply, unless nobody is there any more."""
        self._lost += 1
        slow = isinstance(lost, self._httpx.ReadTimeout)
        if not slow and (not self._reached or self._lost >= self.concurrency):
            raise HarnessError(
                "unreachable",
                f"the server does not answer: {type(lost).__name__}",
                where=public_url(self._url),
                next="start the server (or mend the address), then run the same command again",
            ) from lost
        why = "no answer in time" if slow else "the connection was lost"
        return Reply(None, failure=f"{why}: {type(lost).__name__}", failure_kind="infrastructure")

    def _failed(self, response: Any) -> Reply:
        words, status = self._words(response), response.status_code
        kind = "infrastructure" if status in RETRIED or status >= 500 else "refused"
        if kind == "refused" and _TOO_LONG.search(words):
            kind = "context"
        return Reply(None, failure=f"HTTP {status}: {words}", failure_kind=kind)

    def _refused(self, response: Any) -> HarnessError:
        return HarnessError(
            "refused" if response.status_code in (401, 403) else "unreachable",
            f"the server says HTTP {response.status_code}: {self._words(response)}",
            where=public_url(self._url),
            next="check the key, the model's name and that the address ends in /v1",
        )

    def _words(self, response: Any) -> str:
        """The start of an error body, without the key should the server repeat it."""
        text = " ".join(response.text.split())
        return (text.replace(self._key, "***") if self._key else text)[:200]


def public_url(url: str) -> str:
    """`url` without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


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


def _wait(response: Any, pause: float) -> float:
    asked = "" if response is None else response.headers.get("retry-after", "")
    return min(float(asked), LONGEST_PAUSE) if asked.isdigit() else pause
