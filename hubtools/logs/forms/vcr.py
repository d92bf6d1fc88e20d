"""VCR cassettes (YAML, or JSON of the same shape): traffic as a test recorded it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

from hubtools.logs.exchange import Exchange, LogReader
from hubtools.logs.fields import objects, part
from hubtools.logs.forms.traffic import exchange


def _fits(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("interactions"), list)


def _exchanges(value: Mapping[str, Any]) -> Iterator[Exchange]:
    for pair in objects(value["interactions"]):
        request, response = pair.get("request"), pair.get("response")
        if isinstance(request, Mapping) and isinstance(response, Mapping):
            url = request.get("uri") or request.get("url")
            call = exchange(
                url if isinstance(url, str) else "",
                _body(request),
                _body(response),
                _headers(response.get("headers")),
                part(response, "status", "code"),
                pair,
            )
            if call is not None:
                yield call


def _body(message: Mapping[str, Any]) -> Any:
    if "parsed_body" in message:
        return message["parsed_body"]
    body = message.get("body")
    if not isinstance(body, Mapping):
        return body
    if isinstance(packed := body.get("base64_string"), str):
        try:
            return base64.b64decode(packed)
        except (binascii.Error, ValueError):
            return None
    return body.get("string")


def _headers(headers: Any) -> dict[str, str]:
    found = {}
    for key, value in headers.items() if isinstance(headers, Mapping) else ():
        first = value[0] if isinstance(value, list) and value else value
        found[str(key).lower()] = first if isinstance(first, str) else ""
    return found


READER = LogReader("VCR", _fits, _exchanges)
