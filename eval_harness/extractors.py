"""From what a model wrote to what is scored. A changed rule gets a new version in its name."""

from __future__ import annotations

import re
from collections.abc import Callable

_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_COPULA = re.compile(r"\b(?:is|are)\b:?\s+(.+)$")
_LABEL = re.compile(r"^(?:final\s+)?answer\s*:\s*", re.IGNORECASE)


def short_answer(text: str) -> str | None:
    """The answer in the first sentence of the first line.

    What precedes the last `</think>` is dropped, then a leading `Answer:`. Of a sentence
    "The X of Y is Z." the part after its first "is" or "are" is taken. Quotes and asterisks
    around the answer go.

    Returns:
        The answer, or None when nothing was written or a `<think>` was never closed.
    """
    said = text.rpartition("</think>")[2]
    if "<think>" in said:
        return None
    line = next((line.strip() for line in said.splitlines() if line.strip()), "")
    line = _LABEL.sub("", line)
    sentence = _SENTENCE_END.split(line, maxsplit=1)[0]
    copula = _COPULA.search(sentence)
    answer = (copula.group(1) if copula else sentence).strip(" \t\"'`*")
    return answer or None


EXTRACTORS: dict[str, Callable[[str], str | None]] = {"short_answer/1": short_answer}
