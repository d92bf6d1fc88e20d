"""`short_answer/1`: the answer in the first sentence of the first line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from eval_harness.chat import Message
from eval_harness.extraction.words import Extraction, after_thinking, said

_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_COPULA = re.compile(r"\b(?:is|are)\b:?\s+(.+)$")
_LABEL = re.compile(r"^(?:final\s+)?answer\s*:\s*", re.IGNORECASE)


def extract(prompt: Sequence[Message], transcript: Sequence[Message], finish: str) -> Extraction:
    """As `short_answer`, of the last assistant message."""
    return Extraction(short_answer(said(transcript)))


def short_answer(text: str) -> str | None:
    """The answer in the first sentence of the first line.

    What precedes the last `</think>` is dropped, then a leading `Answer:`. Of a sentence
    "The X of Y is Z." the part after its first "is" or "are" is taken. Quotes and asterisks
    around the answer go.

    Returns:
        The answer, or None when nothing was written or a `<think>` was never closed.
    """
    rest = after_thinking(text)
    if rest is None:
        return None
    line = next((line.strip() for line in rest.splitlines() if line.strip()), "")
    line = _LABEL.sub("", line)
    sentence = _SENTENCE_END.split(line, maxsplit=1)[0]
    copula = _COPULA.search(sentence)
    answer = (copula.group(1) if copula else sentence).strip(" \t\"'`*")
    return answer or None
