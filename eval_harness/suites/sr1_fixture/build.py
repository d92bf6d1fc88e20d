"""Make corpus and items of `sr1_7bench-fixture` again.

`python -m eval_harness.suites.sr1_fixture.build [--check]`; the result depends on the versions of
Python, pycountry and periodictable that its `suite.toml` names.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from eval_harness.suites.sr1_fixture.passages import passages
from eval_harness.suites.sr1_fixture.questions import questions

FOLDER = Path(__file__).parent.with_name("sr1_7bench-fixture")


def corpus() -> Iterable[dict[str, Any]]:
    """Passages in the form of Search-R1's corpora."""
    for number, (title, text) in enumerate(passages()):
        yield {"id": str(number), "contents": f'"{title}"\n{text}'}


def items() -> Iterable[dict[str, Any]]:
    """Items of the suite."""
    numbers: Counter[str] = Counter()
    for category, (question, answers, source) in questions():
        numbers[category] += 1
        yield {
            "id": f"{category}/{numbers[category]}",
            "category": category,
            "context": "",
            "question": question,
            "answers": answers,
            "source": source,
        }


def rendered() -> dict[str, str]:
    """File name → text."""
    made = {"corpus.jsonl": corpus(), "items.jsonl": items()}
    return {name: "".join(map(_line, records)) for name, records in made.items()}


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the files, or with `--check` say by the exit status whether they are up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when they differ")
    if parser.parse_args().check:
        return int(any((FOLDER / n).read_text("utf-8") != text for n, text in rendered().items()))
    for name, text in rendered().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
