"""What a model wants to do next, read from its raw text on our side of the wire.

A server's tool parser drops what follows a call: vLLM's `hermes` parser loses the
`Final answer:` after a finish call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from eval_harness.chat import Reply
from eval_harness.extraction.cascade import FINISHERS, final_line
from eval_harness.extraction.words import after_thinking, enclosed

_TAG = re.compile(r"<(search|answer)>(.*?)</\1>", re.DOTALL)
CLOSERS = ("</search>", "</answer>")


@dataclass(frozen=True, slots=True)
class Action:
    """One step.

    Args:
        kind: `search` with queries, `end` when the model is done, `invalid` when it is not and
            asks for nothing that can be done.
        queries: what to search for; empty for the other kinds.
    """

    kind: Literal["search", "end", "invalid"]
    queries: tuple[str, ...] = ()


Parser = Callable[[str], Action]

END, INVALID = Action("end"), Action("invalid")


def written(reply: Reply) -> str:
    """A reply's text up to its first `</search>`, else its first `</answer>`, as Search-R1 cuts.

    A server may have taken away the closing tag that it stopped at. It is put back where the
    server names it (vLLM's `stop_reason`), or, with one that never does, where a tag is left open.
    """
    text = _put_back(reply)
    for close in CLOSERS:
        head, tag, _ = text.partition(close)
        if tag:
            return head + tag
    return text


def _put_back(reply: Reply) -> str:
    text = reply.text or ""
    if reply.raw is None or reply.finish != "stop":
        return text
    choice = (reply.raw.get("choices") or [{}])[0]
    if "stop_reason" in choice:
        reason = choice["stop_reason"]
        return text + reason if reason in CLOSERS and not text.endswith(reason) else text
    place, close = max((text.rfind(close.replace("/", "")), close) for close in CLOSERS)
    return text + close if place > max(text.rfind(close) for close in CLOSERS) else text


def tags(text: str) -> Action:
    """The first `<search>` or `<answer>` after the thinking; anything else is invalid.

    Other than in Search-R1 a line `Final answer: ...` ends it too: that is what a nudge asks for.
    """
    rest = after_thinking(text)
    match = _TAG.search(text if rest is None else rest)
    if match is None:
        return END if rest and final_line(rest) else INVALID
    if match[1] == "answer":
        return END
    query = match[2].strip()
    return Action("search", (query,)) if query else INVALID


def tool_calls(text: str) -> Action:
    """The first `<tool_call>` after the thinking; no call at all ends the conversation.

    One call is done per turn; where several are written, one that finishes counts before others.
    """
    rest = after_thinking(text)
    if rest is None:
        return INVALID
    calls = [_call(call) for call in enclosed(rest, "tool_call")]
    if END in calls:
        return END
    if calls:
        return calls[0]
    return INVALID if "<tool_call>" in rest else END


def _call(text: str) -> Action:
    try:
        data = json.loads(text)
        name, arguments = data["name"], data.get("arguments", {})
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        if name in FINISHERS:
            return END
        queries = arguments["query_list"] if name == "search" else ()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return INVALID
    queries = [queries] if isinstance(queries, str) else queries
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        return INVALID
    wanted = tuple(query.strip() for query in queries if query.strip())
    return Action("search", wanted) if wanted else INVALID
