"""The two extractors that are both called Search-R1's and give different numbers."""

from __future__ import annotations

from collections.abc import Sequence

from eval_harness.chat import Message
from eval_harness.extraction.words import Extraction, enclosed


def extract(prompt: Sequence[Message], transcript: Sequence[Message], finish: str) -> Extraction:
    """`search_r1/1`: the last `<answer>` of prompt and response, if there are two or more.

    Search-R1 scores the two as one string, and its prompt holds an example answer; under a prompt
    without one, a single right answer is no answer.
    """
    found = enclosed(_joined([*prompt, *transcript]), "answer")
    return Extraction((found[-1].strip() or None) if len(found) > 1 else None)


def extract_verl(
    prompt: Sequence[Message], transcript: Sequence[Message], finish: str
) -> Extraction:
    """`search_r1_verl/1`: the last `<answer>` of the response, observations included.

    verl quarters the score of a response with more than ten tags; that is a matter of reward and
    not done here.
    """
    found = enclosed(_joined(transcript), "answer")
    return Extraction((found[-1].strip() or None) if found else None)


def _joined(messages: Sequence[Message]) -> str:
    return "\n".join(str(message["content"] or "") for message in messages)
