"""Extraction rules by name. A changed rule gets a new version in its name."""

from __future__ import annotations

from eval_harness.extraction import cascade, search_r1, short_answer
from eval_harness.extraction.words import Extraction, Extractor

__all__ = ["EXTRACTORS", "Extraction", "Extractor"]

EXTRACTORS: dict[str, Extractor] = {
    "short_answer/1": short_answer.extract,
    "answer_cascade/1": cascade.extract,
    "search_r1/1": search_r1.extract,
    "search_r1_verl/1": search_r1.extract_verl,
}
