"""From an exchange to records: the API format is told by the response, never by the logger."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from hubtools.logs.apis import anthropic, bedrock, gemini, ollama, openai_chat, openai_responses
from hubtools.logs.bodies import body_objects
from hubtools.logs.exchange import Answer, ApiFormat, Exchange
from hubtools.logs.fields import name, names, part, role, seconds
from hubtools.logs.jsonline import BadJsonError
from hubtools.logs.records import BadLine, Grade, Record

APIS: tuple[ApiFormat, ...] = (
    openai_chat.FORMAT,
    openai_responses.FORMAT,
    anthropic.FORMAT,
    gemini.FORMAT,
    bedrock.FORMAT,
    ollama.FORMAT,
)

# Gemini, Bedrock and Azure name the model (Azure: the deployment) in the address.
_URL_MODEL = re.compile(
    r"/models/([^/:?]+):\w*[gG]enerateContent|/model/([^/?]+)/(?:converse|invoke)"
    r"|/deployments/([^/?]+)/"
)

_STREAM_PARTS = re.compile(r"ping|content_block_\w+|message_(?:delta|stop)|response\.[\w.]+")


def api_of(value: Mapping[str, Any]) -> ApiFormat | None:
    """The API format of a response, None when it is none that is known."""
    return next((api for api in APIS if api.fits(value)), None)


def is_stream_part(value: Mapping[str, Any]) -> bool:
    """Whether an object is a part of a stream that says nothing of its origin."""
    kind = value.get("type")
    if isinstance(kind, str) and _STREAM_PARTS.fullmatch(kind) and api_of(value) is None:
        return True
    return ollama.FORMAT.fits(value) and value["done"] is False


def records(call: Exchange, file: str, line: int) -> Iterator[Record | BadLine]:
    """The record of one call; one per distinct name for a stream."""
    try:
        yield from _records(call, file, line)
    except BadJsonError as bad:
        yield BadLine(file, line, bad.kind, bad.detail)
    except RecursionError:
        yield BadLine(file, line, "too deep")


def _records(call: Exchange, file: str, line: int) -> Iterator[Record | BadLine]:
    asked = _request(call.request)
    seen = Record(
        file,
        line,
        "E",
        role=role(call.role),
        requested=name(asked.get("model")) or name(call.requested) or _from_url(call.url),
        offered=names(asked.get("models")),
        harness=call.harness,
    )
    if call.harness:
        yield seen
    elif call.error:
        yield replace(seen, error=_error_name(call.error))
    elif call.answer is not None:
        yield _record(call.answer, seen, call, {})
    else:
        found, streamed = body_objects(call.response)
        if error := _error(found):
            yield replace(seen, error=_error_name(error))
        elif streamed:
            yield from _stream(found, seen, call)
        elif found:
            asked_stream = bool(asked.get("stream"))
            yield _record(_answer(found[0], asked_stream), seen, call, found[0], asked_stream)
        else:
            yield BadLine(file, line, "not a response", "its response is not an object")


def _stream(
    parts: Sequence[Mapping[str, Any]], seen: Record, call: Exchange
) -> Iterator[Record | BadLine]:
    found: dict[str, Record] = {}
    for item in parts:
        if api_of(item) is not None:
            record = _record(_answer(item, True), seen, call, item, True)
            found.setdefault(record.reported, replace(record, piece=True, body=""))
    if len(found) > 1:
        found.pop("", None)  # Azure's first chunk says model ""
    yield from found.values()
    if not found:
        what = "no part of its stream is known" if parts else "an empty stream"
        yield BadLine(seen.file, seen.line, "not a response", what)


def _answer(value: Mapping[str, Any], streamed: bool) -> Answer:
    api = api_of(value)
    if api is not None:
        return api.answer(value, streamed)
    id, created = name(value.get("id")), seconds(value.get("created"))
    return Answer(missing="other format", id=id, created=created, worth="E")


def _record(
    answer: Answer, seen: Record, call: Exchange, body: Mapping[str, Any], streamed: bool = False
) -> Record:
    grade: Grade = "E"
    if answer.reported:
        between: Grade = "A" if not call.gateway else "E" if streamed else "C"
        grade = max(answer.worth, call.best, between)
    return replace(
        seen,
        reported=answer.reported,
        missing=answer.missing,
        id=answer.id,
        created=answer.created if answer.created is not None else call.date,
        fingerprint=answer.fingerprint,
        provider=answer.provider,
        body="" if answer.piece or not body else _digest(body),
        piece=answer.piece,
        grade=grade,
    )


def _digest(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _request(request: Any) -> Mapping[str, Any]:
    try:
        found, _ = body_objects(request)
    except BadJsonError:  # a request may be anything; only its model matters
        return {}
    return found[0] if found else {}


def _from_url(url: str) -> str:
    found = _URL_MODEL.search(url)
    return name(unquote(next(filter(None, found.groups())))) if found else ""


def _error(found: Sequence[Mapping[str, Any]]) -> Any:
    """The error in place of a response; one after the first part of a stream is none."""
    if not found or not found[0].get("error"):
        return part(found[0], "response", "error") if len(found) == 1 else None
    return found[0]["error"]


def _error_name(error: Any) -> str:
    if isinstance(error, Mapping):
        error = error.get("type") or error.get("code") or "error"
    return name(str(error))[:60] or "error"
