"""What recorded HTTP traffic has in common: which requests asked a model, the server's clock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from hubtools.logs.answers import api_of
from hubtools.logs.bodies import body_objects
from hubtools.logs.exchange import Exchange
from hubtools.logs.jsonline import BadJsonError

_ASKS = re.compile(
    r"/(?:completions|responses|messages|converse|converse-stream|invoke"
    r"|invoke-with-response-stream)(?:$|\?)|:\w*[gG]enerateContent|/api/(?:chat|generate)(?:$|\?)"
)


def exchange(
    url: str, request: Any, response: Any, headers: Mapping[str, str], status: Any, at: Any
) -> Exchange | None:
    """One recorded request as a call; None when it asked no model.

    `headers` are the response's, with names in lower case.
    """
    if not _ASKS.search(url) and not _known(response):
        return None
    failed = isinstance(status, int) and status >= 400
    return Exchange(
        request,
        response,
        # A LiteLLM proxy writes the name that the client asked for into its answers.
        best="E" if any(key.startswith("x-litellm-") for key in headers) else "A",
        url=url,
        date=_date(headers.get("date", "")),
        error=f"status {status}" if failed else None,
        at=at,
    )


def _known(response: Any) -> bool:
    try:
        found, _ = body_objects(response)
    except BadJsonError:
        return False
    return any(api_of(item) is not None for item in found)


def _date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
