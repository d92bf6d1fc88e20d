"""Scores of one extracted answer against the accepted ones, each from 0 to 1.

All follow SQuAD's normal form: lower case, ASCII punctuation dropped, articles dropped, white
space collapsed; the best value over the accepted answers counts. Other punctuation and accents
stay, as in Search-R1.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = frozenset({"yes", "no", "noanswer"})


@lru_cache(maxsize=4096)
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


def sub_match(answer: str | None, accepted: Sequence[str]) -> float:
    """1.0 when some accepted answer's normal form stands within the answer's (Search-R1).

    An accepted answer without a normal form ("The") stands within its like alone.
    """
    if answer is None:
        return 0.0
    found = normalise(answer)
    golds = [normalise(gold) for gold in accepted]
    return float(any(gold in found if gold else not found for gold in golds))


def f1_squad(answer: str | None, accepted: Sequence[str]) -> float:
    """Harmonic mean of token precision and recall, SQuAD 1.1's variant, best over the accepted."""
    if answer is None:
        return 0.0
    return max(_f1(normalise(answer), normalise(gold)) for gold in accepted)


def f1_flashrag(answer: str | None, accepted: Sequence[str]) -> float:
    """FlashRAG's (and HotpotQA's) variant: yes, no and noanswer match themselves alone."""
    if answer is None:
        return 0.0
    found = normalise(answer)
    golds = [normalise(gold) for gold in accepted]
    return max(
        0.0 if found != gold and (found in _CLOSED or gold in _CLOSED) else _f1(found, gold)
        for gold in golds
    )


def _f1(found: str, gold: str) -> float:
    ours, theirs = found.split(), gold.split()
    if not ours or not theirs:
        return float(ours == theirs)
    common = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * common / (len(ours) + len(theirs))


SCORERS: dict[str, Callable[[str | None, Sequence[str]], float]] = {
    "em/1": exact_match,
    "sub_em/1": sub_match,
    "f1_squad/1": f1_squad,
    "f1_flashrag/1": f1_flashrag,
}
