"""One call an object: `{"request": …, "response": …, "role": …}`, and providers' batch output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hubtools.logs.exchange import Exchange, LogReader
from hubtools.logs.fields import part


def _fits(value: Mapping[str, Any]) -> bool:
    if isinstance(value.get("done"), bool):  # Ollama's `response` is the generated text
        return False
    return "response" in value or (
        "custom_id" in value and isinstance(value.get("result"), Mapping)
    )


def _exchanges(value: Mapping[str, Any]) -> Iterator[Exchange]:
    if "response" not in value:
        yield _anthropic_batch(value["result"])
        return
    request, response, error = value.get("request"), value["response"], value.get("error")
    if isinstance(part(response, "body"), Mapping):
        status = response.get("status_code")
        if isinstance(status, int) and status >= 400:
            error = error or f"status {status}"
        response = response["body"]
    yield Exchange(
        request if isinstance(request, Mapping) else None,
        response,
        role=value.get("role"),
        best="A" if "custom_id" in value else "B",
        error=error,
    )


def _anthropic_batch(result: Mapping[str, Any]) -> Exchange:
    message = result.get("message")
    error = "" if message else result.get("error") or result.get("type") or "error"
    return Exchange(response=message, best="A", error=error)


READER = LogReader("request and response pairs", _fits, _exchanges)
