r"""`answer_cascade/1`: five rungs, from an answer that is marked as one down to the last line.

1. the last complete `<answer>`;
2. the last line `Final answer: ...`;
3. the last balanced `\boxed{...}`;
4. the argument of the last finish call;
5. the last line with anything in it.

Only the last assistant message counts, after its last `</think>`. A recipe that teaches a
terminator moves answers up the rungs, which looks like skill: so the rung is kept, and the rungs
that found something else are told as a conflict.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from eval_harness.chat import Message
from eval_harness.extraction.words import Extraction, after_thinking, enclosed, said
from eval_harness.scorers import normalise

FINISHERS = frozenset({"finish", "submit", "final_answer"})
_FIELDS = ("answer", "result", "message", "output")
_CUT = frozenset({"length", "max_turns", "context"})
_FINAL = re.compile(r"^[^\w\n]*Final answer[^\w\n:]*:[^\S\n]*(.+)$", re.IGNORECASE | re.MULTILINE)
_BRACES = re.compile(r"\\boxed\{|[{}]")


def extract(prompt: Sequence[Message], transcript: Sequence[Message], finish: str) -> Extraction:
    """The answer, its rung, and whether a lower marked rung disagrees.

    What was cut off (by its length, its turns or its context, or while thinking) has no fifth
    rung: its last line is where the writing stopped, not an answer
    (EleutherAI/lm-evaluation-harness#3382).
    """
    text = after_thinking(said(transcript))
    if text is None:
        return Extraction(None, truncated=True)
    found = [(tier, answer) for tier, rung in enumerate(_RUNGS, start=1) if (answer := rung(text))]
    truncated = finish in _CUT
    if not found and not truncated and (line := _last_line(text)):
        found = [(len(_RUNGS) + 1, line)]
    if not found:
        return Extraction(None, truncated=truncated)
    tier, answer = found[0]
    conflict = len({normalise(other) for _, other in found}) > 1
    return Extraction(answer, tier, conflict, truncated)


def _tagged(text: str) -> str:
    return _last(enclosed(text, "answer"))


def final_line(text: str) -> str:
    """The answer of the last line `Final answer: ...`; empty without one."""
    return _last(_FINAL.findall(text)).strip(" \t*_`")


def _boxed(text: str) -> str:
    r"""The content of the last `\boxed{` whose braces close."""
    open_braces: list[re.Match[str]] = []
    last = (0, 0)
    for brace in _BRACES.finditer(text):
        if brace[0] != "}":
            open_braces.append(brace)
        elif open_braces and (opening := open_braces.pop())[0] != "{":
            last = max(last, (opening.end(), brace.start()))
    return text[slice(*last)].strip()


def _finish_call(text: str) -> str:
    for call in reversed(enclosed(text, "tool_call")):
        arguments = finish_arguments(call)
        if arguments is not None:
            values = [arguments[name] for name in _FIELDS if name in arguments]
            return str(values[0]).strip() if values else ""
    return ""


def finish_arguments(call: str) -> dict[str, Any] | None:
    """Arguments of a call that ends the conversation; None when it is another, or no JSON."""
    try:
        data = json.loads(call)
        arguments = data.get("arguments", {})
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
    except (ValueError, AttributeError, RecursionError):
        return None
    if data.get("name") not in FINISHERS:
        return None
    return arguments if isinstance(arguments, dict) else {}


def _last_line(text: str) -> str:
    return _last([line for line in text.splitlines() if line.strip()])


def _last(found: Sequence[str]) -> str:
    return found[-1].strip() if found else ""


_RUNGS: tuple[Callable[[str], str], ...] = (_tagged, final_line, _boxed, _finish_call)
