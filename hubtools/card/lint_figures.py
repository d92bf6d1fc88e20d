"""Figures in hand-written text that read as results and rest on no fact of the card. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hubtools.card.model import CardInput
from hubtools.card.rules import has_evidence, protocol_fields, suite_metric
from hubtools.card.text import number, values_of
from hubtools.facts import Fact

_FIGURE = re.compile(
    r"(?<![\w.])(?<!\w-)(\d+(?:,\d{3})*(?:\.\d+)?)(?![\w]|\.\d)(\s*(?:%|percent\b|per cent\b))?"
)
_METRIC = re.compile(
    r"(?<![\w-])(?:EM|F1|AUC|WER|BLEU|ROUGE|MMLU|acc(?:uracy|uracies)?|exact[ -]match|precision"
    r"|recall|scor(?:es?|ed|ing)|(?:pass|mean|maj|cons|best)[@^]\w+|(?:win|success|solve)[ -]rates?"
    r"|perplexity|rewards?|elo)(?!\w)",
    re.IGNORECASE,
)
_SETTING_BEFORE = re.compile(
    r"(?:\blr|learning[ -]rates?|warm-?up|dropout|decay|temp(?:erature)?s?|top[-_ ]?[pk]|min[-_ ]p"
    r"|alpha|beta\d?|gamma|eps(?:ilon)?|momentum|clip(?:ped|ping)?|norm|penalty|epochs?"
    r"|thresholds?|level|versions?|\bp|torch|transformers|peft|vllm|python|cuda|llama|qwen)"
    r"(?:\s+(?:of|at|to|was|is|ratio|rate|set|norm))*\W*$",
    re.IGNORECASE,
)
_SETTING_AFTER = re.compile(
    r"\s*(?:confidence|credible|interval|CI\b|dropout|warm-?up|(?:weight )?decay|learning rate"
    r"|epochs?\b|[kMG]i?B\b|[BM]\b|billion|million|bits?\b|tokens\b|steps\b|seconds|minutes|hours"
    r"|of (?:the |all )?(?:\w+ )?(?:data|dataset|corpus|tokens|steps|batch|mixture|documents)\b)",
    re.IGNORECASE,
)
_LISTED = re.compile(r"(?:\d[\d.]*\s*%?\s*(?:,|and|or|to|/|–|±)\s*)+$")
_SENTENCE_END = re.compile(r"[.!?;](?=\s)|\n[ \t]*(?=(?:[-*+]|\d+[.)])[ \t])")
_LINK = re.compile(r"\]\([^)\s]*\)|https?://\S+")


def unfounded(card: CardInput, text: str) -> Iterator[tuple[str, int]]:
    """(figure as written, offset) of decimals beside a metric's name, and percentages, that no
    fact of the card gives when it is rounded as they are.

    Settings of training and sampling, versions and levels of intervals are no results.

    Args:
        card: whose facts count.
        text: one paragraph, list or table of hand-written Markdown.
    """
    text = _LINK.sub(lambda found: " " * len(found[0]), text)
    table = text.lstrip().startswith("|")
    exact, rounded = _known(card)
    start = 0
    ends = [] if table else [found.end() for found in _SENTENCE_END.finditer(text)]
    for end in (*ends, len(text)):
        sentence = text[start:end]
        metric = _METRIC.search(sentence) is not None
        for found in _FIGURE.finditer(sentence):
            percent = bool(found[2])
            if not percent and not (metric and "." in found[1]):
                continue
            known = (number(found[1]), percent) in exact or _is_rounded(found[1], percent, rounded)
            if known or _is_setting(sentence, found):
                continue
            yield found[0].strip(), start + found.start()
        start = end


def _is_setting(sentence: str, figure: re.Match[str]) -> bool:
    before = _LISTED.sub("", sentence[: figure.start()])
    after = sentence[figure.end() :]
    return bool(_SETTING_BEFORE.search(before) or _SETTING_AFTER.match(after))


def _is_rounded(token: str, percent: bool, rounded: tuple[tuple[float, bool], ...]) -> bool:
    value = number(token)
    half = 0.5 * 10.0 ** -len(token.partition(".")[2]) + 1e-9
    for known, proportion in rounded:
        scales = (100.0,) if percent and proportion else (1.0, 100.0) if proportion else (1.0,)
        if any(abs(known * scale - value) <= half for scale in scales):
            return True
    return False


def _known(
    card: CardInput,
) -> tuple[frozenset[tuple[float, bool]], tuple[tuple[float, bool], ...]]:
    """(number, is a percentage) as the card prints it; (result, is a proportion)."""
    words: list[str] = []
    rounded: list[tuple[float, bool]] = []
    for fact in card.facts:
        if fact.status == "measured" and suite_metric(fact) and not has_evidence(card, fact):
            continue
        unit = " %" if fact.unit == "%" else ""
        words += [fact.source.quote, *(f"{value}{unit}" for value in values_of(fact))]
        rounded += ((value, fact.unit == "proportion") for value in _figures(fact))
    for row in card.comparisons:
        rounded += ((abs(value), True) for value in (row.diff, row.low, row.high))
    for protocol in {suite.protocol_id for suite in card.suites}:
        words += protocol_fields(card, protocol).values()
    found = [figure for text in words for figure in _FIGURE.finditer(text)]
    return frozenset((number(f[1]), bool(f[2])) for f in found), tuple(rounded)


def _figures(fact: Fact) -> list[float]:
    spread = [fact.spread.low, fact.spread.high] if fact.spread is not None else []
    plain = [v for v in values_of(fact) if isinstance(v, int | float) and not isinstance(v, bool)]
    return [float(value) for value in (*plain, *spread)]
