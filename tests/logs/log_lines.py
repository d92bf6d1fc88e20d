"""Log lines for the tests, as the common loggers write them."""

import json
from typing import Any


def response(id: str = "chatcmpl-a1", model: Any = "model-x", **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "object": "chat.completion",
        "created": 1780000000,
        "model": model,
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi"}}
        ],
        **more,
    }


def chunk(id: str, model: str, **more: Any) -> dict[str, Any]:
    part = {"index": 0, "delta": {"content": "Hi"}}
    return response(id, model, object="chat.completion.chunk", choices=[part], **more)


def pair(answer: Any, asked: str = "alias-x", **more: Any) -> dict[str, Any]:
    return {
        "role": "agent",
        "request": {"model": asked, "messages": []},
        "response": answer,
        **more,
    }


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)
