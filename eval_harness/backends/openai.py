"""Answers through any OpenAI-compatible `/chat/completions`: vLLM, llama.cpp, a paid service."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from eval_harness.backend import Reply
from eval_harness.errors import HarnessError
from eval_harness.suite import Message

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
FATAL = frozenset({401, 403, 404, 405})
ATTEMPTS = 5


class OpenAIBackend:
    """A served model.

    Busy and broken answers (429, 5xx) are retried with growing pauses, or as long as the server's
    `Retry-After` asks for, up to 30 s. A question that still fails is a failure of that question;
    a refused key, a wrong address or a server that is gone ends the run, which can be resumed.

    Args:
        base_url: up to and including `/v1`.
        model: name to ask for. What the server reports is kept beside it.
        api_key_env: environment variable that holds the key; may be unset for open servers.
        batch_size: requests in flight at once.
        timeout: seconds for one answer.
        pause: seconds before the first retry; doubles each time.

    Raises:
        HarnessError: `missing_package`.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key_env: str = "OPENAI_API_KEY",
        batch_size: int = 4,
        timeout: float = 120.0,
        pause: float = 1.0,
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
        self.batch_size = batch_size
        self._model = model
        self._url = base_url.rstrip("/")
        self._pause = pause
        self._key = os.environ.get(api_key_env, "")
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._client = httpx.Client(headers=headers, timeout=timeout)

    def describe(self) -> dict[str, Any]:
        """Address without credentials and the model name asked for."""
        return {"backend": "openai", "endpoint": public_url(self._url), "requested": self._model}

    def answer(
        self,
        chats: Sequence[list[Message]],
        *,
        max_new_tokens: int,
        temperature: float,
        seed: int,
    ) -> list[Reply]:
        """One reply per chat.

        Raises:
            HarnessError: `unreachable` or `refused`.
        """
        wishes = {"max_tokens": max_new_tokens, "temperature": temperature, "seed": seed}
        bodies = [{"model": self._model, "messages": chat, **wishes} for chat in chats]
        with ThreadPoolExecutor(self.batch_size) as pool:
            return list(pool.map(self._ask, bodies))

    def _ask(self, body: dict[str, Any]) -> Reply:
        response = self._post(body)
        if response.status_code in FATAL:
            raise self._refused(response)
        if response.status_code != 200:
            return Reply(None, failure=f"HTTP {response.status_code}: {self._words(response)}")
        try:
            data = response.json()
        except ValueError:
            return Reply(None, failure="the response is not JSON")
        return _reply(data)

    def _post(self, body: dict[str, Any]) -> Any:
        """The last response after retries; no response at all ends the run."""
        lost: Exception | None = None
        response: Any = None
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(_wait(response, self._pause * 2 ** (attempt - 1)))
            try:
                response = self._client.post(f"{self._url}/chat/completions", json=body)
            except (self._httpx.TransportError, self._httpx.InvalidURL) as error:
                lost, response = error, None
                continue
            if response.status_code not in RETRIED:
                return response
        if response is None:
            raise HarnessError(
                "unreachable",
                f"the server does not answer: {type(lost).__name__}",
                where=public_url(self._url),
                next="start the server (or mend the address), then run the same command again",
            ) from lost
        return response

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
        text = choice["message"]["content"]
        finish = str(choice.get("finish_reason") or "")
    except (AttributeError, IndexError, KeyError, TypeError):
        return Reply(None, failure="the response has no choices[0].message.content", raw=raw)
    usage = data.get("usage")
    used = usage if isinstance(usage, dict) else {}
    counts = {side: used.get(f"{side}_tokens") for side in ("prompt", "completion")}
    whole = {s: n if isinstance(n, int) else None for s, n in counts.items()}
    if not isinstance(text, str):
        return Reply(None, finish, failure=f"content is {type(text).__name__}, not text", raw=raw)
    return Reply(
        text, finish, prompt_tokens=whole["prompt"], completion_tokens=whole["completion"], raw=raw
    )


def _wait(response: Any, pause: float) -> float:
    asked = "" if response is None else response.headers.get("retry-after", "")
    return min(float(asked), 30.0) if asked.isdigit() else pause
