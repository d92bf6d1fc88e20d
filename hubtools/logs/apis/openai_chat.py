"""Chat completions as OpenAI, DeepSeek, OpenRouter, Azure, Mistral, vLLM and others answer them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hubtools.logs.exchange import Answer, ApiFormat
from hubtools.logs.fields import missing, name, objects, seconds
from hubtools.logs.records import Grade

_LITELLM = {"provider_specific_fields", "_hidden_params"}
# Ollama draws a chat id from a few hundred numbers: equal ids mean nothing.
_WEAK_ID = re.compile(r"chatcmpl-\d{1,4}")


def _fits(value: Mapping[str, Any]) -> bool:
    kind = value.get("object")
    if isinstance(kind, str) and kind.startswith("chat.completion"):
        return True
    return isinstance(value.get("choices"), list)


def _answer(value: Mapping[str, Any], streamed: bool) -> Answer:
    id = name(value.get("id"))
    piece = value.get("object") == "chat.completion.chunk"
    return Answer(
        name(value.get("model")),
        missing(value),
        "" if _WEAK_ID.fullmatch(id) else id,
        seconds(value.get("created")),
        name(value.get("system_fingerprint")),
        name(value.get("provider")),
        piece,
        _worth(value, streamed or piece),
    )


def _worth(value: Mapping[str, Any], streamed: bool) -> Grade:
    if value.get("system_fingerprint") == "fp_ollama":  # Ollama copies the name from the request
        return "E"
    first = objects(value.get("choices"))[:1]
    inner = [choice.get(key) for choice in first for key in ("message", "delta")]
    if any(
        isinstance(part, Mapping) and _LITELLM & part.keys() for part in [value, *first, *inner]
    ):
        return "E" if streamed else "C"  # LiteLLM writes the requested name into every chunk
    return "A"


FORMAT = ApiFormat("OpenAI chat completions", _fits, _answer)
