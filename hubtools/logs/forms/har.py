"""HAR captures, as browsers and proxies save traffic."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from hubtools.logs.exchange import Exchange, LogReader
from hubtools.logs.fields import iso_seconds, objects, part
from hubtools.logs.forms.traffic import exchange


def _fits(value: Mapping[str, Any]) -> bool:
    return isinstance(part(value, "log", "entries"), list)


def _exchanges(value: Mapping[str, Any]) -> Iterator[Exchange]:
    for entry in objects(value["log"]["entries"]):
        url = part(entry, "request", "url")
        call = exchange(
            url if isinstance(url, str) else "",
            part(entry, "request", "postData", "text"),
            _content(part(entry, "response", "content")),
            _headers(part(entry, "response", "headers")),
            part(entry, "response", "status"),
            entry,
        )
        if call is not None:
            started = iso_seconds(entry.get("startedDateTime"))
            yield replace(call, date=call.date if call.date is not None else started)


def _content(content: Any) -> Any:
    text = part(content, "text")
    if part(content, "encoding") != "base64" or not isinstance(text, str):
        return text
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return None


def _headers(headers: Any) -> dict[str, str]:
    return {
        str(header.get("name")).lower(): str(header.get("value")) for header in objects(headers)
    }


READER = LogReader("HAR", _fits, _exchanges)
