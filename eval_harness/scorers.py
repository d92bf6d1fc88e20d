"""Scores of one extracted answer against the accepted ones, each from 0 to 1.

Both follow SQuAD's evaluation: lower case, ASCII punctuation dropped, articles dropped, white
space collapsed, best value over the accepted answers.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """SQuAD's normal form of an answer."""
    plain = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def exact_match(answer: str | None, accepted: Sequence[str]) -> float:
    """1.0 when the normal forms are equal for some accepted answer."""
    if answer is None:
        return 0.0
    found = normalise(answer)
    return float(any(found == normalise(gold) for gold in accepted))


def token_f1(answer: str | None, accepted: Sequence[str]) -> float:
    """Harmonic mean of token precision and recall, SQuAD 1.1's variant, best over the accepted."""
    if answer is None:
        return 0.0
    return max(_f1(normalise(answer).split(), normalise(gold).split()) for gold in accepted)


def _f1(found: list[str], gold: list[str]) -> float:
    if not found or not gold:
        return float(found == gold)
    common = sum((Counter(found) & Counter(gold)).values())
    return 2 * common / (len(found) + len(gold))


SCORERS: dict[str, Callable[[str | None, Sequence[str]], float]] = {
    "em/1": exact_match,
    "f1/1": token_f1,
}


def metric_name(scorer: str) -> str:
    """`em` for `em/1`: the name in tables; the version is part of the protocol."""
    return scorer.partition("/")[0]
