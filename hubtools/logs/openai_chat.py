"""Reader of OpenAI-style chat-completion logs, one JSON object a line.

Shapes: `{"request": …, "response": …, "role": …}` as loggers write it, a bare response, a line of
the Batch API's output, and streams (a list of chunks in `response`, or one chunk a line).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hubtools.logs.jsonline import BadJsonError, parse_line
from hubtools.logs.records import BadLine, Grade, Missing, Record

_LITELLM = {"provider_specific_fields", "_hidden_params"}
# Ollama draws a chat id from a few hundred numbers: equal ids mean nothing.
_WEAK_ID = re.compile(r"chatcmpl-\d{1,4}")


def read_line(line: bytes, file: str, number: int) -> Iterator[Record | BadLine]:
    """The record on one line; one per distinct model name for a line that holds a whole stream.

    `line` is raw, with its newline when it has one; `file` and `number` say where it stands.
    """
    try:
        yield from _records(parse_line(line), file, number)
    except BadJsonError as bad:
        yield BadLine(file, number, bad.kind, bad.detail)
    except RecursionError:
        yield BadLine(file, number, "too deep")


def _records(value: dict[str, Any], file: str, number: int) -> Iterator[Record | BadLine]:
    bare = "response" not in value
    if bare and not _is_response(value):
        what = "a request alone" if "request" in value or "custom_id" in value else "another format"
        yield BadLine(file, number, "not a response", what)
        return
    request, error = value.get("request"), value.get("error")
    response = value if bare else value["response"]
    if isinstance(response, dict) and isinstance(response.get("body"), dict):
        status = response.get("status_code")
        if isinstance(status, int) and status >= 400:
            error = error or f"status {status}"
        response = response["body"]
    asked = request if isinstance(request, dict) else {}
    seen = Record(
        file,
        number,
        "E",
        role=_role(value.get("role")),
        requested=_name(asked.get("model")),
        offered=_names(asked.get("models")),
    )
    if error := error or _error(response):
        yield replace(seen, error=_error_name(error))
    elif isinstance(response, list):
        yield from _stream(response, seen)
    elif isinstance(response, dict):
        yield _record(
            response, seen, batch="custom_id" in value, streamed=bool(asked.get("stream"))
        )
    else:
        yield BadLine(file, number, "not a response", "its response is not an object")


def _stream(chunks: list[Any], seen: Record) -> Iterator[Record | BadLine]:
    found: dict[str, Record] = {}
    for chunk in chunks:
        if isinstance(chunk, dict):
            record = _record(chunk, seen, batch=False, streamed=True)
            found.setdefault(record.reported, replace(record, piece=True, body=""))
    if len(found) > 1:
        found.pop("", None)  # Azure's first chunk says model ""
    yield from found.values()
    if not found:
        yield BadLine(seen.file, seen.line, "not a response", "an empty stream")


def _record(response: dict[str, Any], seen: Record, *, batch: bool, streamed: bool) -> Record:
    kind = response.get("object")
    piece = kind == "chat.completion.chunk"
    chat = _is_response(response)
    reported = _name(response.get("model")) if chat else ""
    fingerprint = _name(response.get("system_fingerprint"))
    id = _name(response.get("id"))
    body = json.dumps(response, sort_keys=True, separators=(",", ":"))
    return replace(
        seen,
        reported=reported,
        missing="" if reported else _missing(response, chat),
        id="" if _WEAK_ID.fullmatch(id) else id,
        created=_seconds(response.get("created")),
        fingerprint=fingerprint,
        provider=_name(response.get("provider")),
        body="" if piece else hashlib.sha256(body.encode()).hexdigest()[:32],
        piece=piece,
        grade=_grade(response, reported, fingerprint, batch=batch, streamed=streamed or piece),
    )


def _grade(
    response: dict[str, Any], reported: str, fingerprint: str, *, batch: bool, streamed: bool
) -> Grade:
    if not reported or fingerprint == "fp_ollama":  # Ollama copies the name from the request
        return "E"
    choices = response.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    parts = [response, first]
    if isinstance(first, dict):
        parts += [first.get("message"), first.get("delta")]
    if any(isinstance(part, dict) and _LITELLM & part.keys() for part in parts):
        return "E" if streamed else "C"  # LiteLLM writes the requested name into every chunk
    return "A" if batch else "B"


def _is_response(value: dict[str, Any]) -> bool:
    kind = value.get("object")
    if isinstance(kind, str) and kind.startswith("chat.completion"):
        return True
    return isinstance(value.get("choices"), list) or bool(_error(value))


def _error(response: Any) -> Any:
    return response.get("error") if isinstance(response, dict) else None


def _error_name(error: Any) -> str:
    if isinstance(error, dict):
        error = error.get("type") or error.get("code") or "error"
    return _name(str(error))[:60] or "error"


def _missing(response: dict[str, Any], chat: bool) -> Missing:
    if not chat:
        return "other format"
    if "model" not in response or response["model"] == "":
        return "absent"
    return "null" if response["model"] is None else "not text"


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # A number beyond any date, also one too big for a float, is no date.
    return float(value) if abs(value) < 1e15 else None


def _role(value: Any) -> str:
    text = value.strip().lower() if isinstance(value, str) else ""
    return re.sub(r"[^a-z0-9_-]+", "_", text)[:40].strip("_") or "unknown"


def _names(value: Any) -> tuple[str, ...]:
    return tuple(filter(None, map(_name, value))) if isinstance(value, list) else ()


def _name(value: Any) -> str:
    """A name as it may be shown: one line, printable, not endless."""
    if not isinstance(value, str):
        return ""
    return "".join(char if char.isprintable() else "?" for char in value.strip()[:200])
