"""What every extraction rule shares: its result, and what of a sample the model itself wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eval_harness.chat import Message


@dataclass(frozen=True, slots=True)
class Extraction:
    """What a rule found.

    Args:
        text: the answer; None when there is none.
        tier: which rung of a cascade gave it, from 1; None where there are no rungs.
        conflict: two rungs found answers that differ in normal form.
        truncated: the writing ended before the model was done.
    """

    text: str | None
    tier: int | None = None
    conflict: bool = False
    truncated: bool = False


Extractor = Callable[[Sequence[Message], Sequence[Message], str], Extraction]
"""Takes a sample's prompt messages, its transcript and its finish."""


def said(transcript: Sequence[Message]) -> str:
    """The last assistant message, raw: observations and tool results are never the model's."""
    for message in reversed(transcript):
        if message["role"] == "assistant":
            return str(message["content"] or "")
    return ""


def after_thinking(text: str) -> str | None:
    """What follows the last `</think>`; None when a `<think>` is still open there.

    No opening tag is asked for: some chat templates write it into the prompt
    (vllm-project/vllm#22507).
    """
    rest = text.rpartition("</think>")[2]
    return None if "<think>" in rest else rest


def enclosed(text: str, tag: str) -> list[str]:
    """What stands between each `<tag>` and the next `</tag>`, in order; what is open is left out.

    The text behind the last closing tag is cut off first: a model that repeats an opening tag
    thousands of times would make the search quadratic.
    """
    close = f"</{tag}>"
    closed = text[: text.rfind(close) + len(close)] if close in text else ""
    return re.findall(f"<{tag}>(.*?){close}", closed, re.DOTALL)
