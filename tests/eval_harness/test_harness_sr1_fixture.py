from __future__ import annotations

import json
import platform
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest

from eval_harness.retrievers.bm25 import Index, cached_index
from eval_harness.retrievers.passages import Passage
from eval_harness.scorers import normalise
from eval_harness.suites.sr1_fixture import build

SUITE = tomllib.loads((build.FOLDER / "suite.toml").read_text("utf-8"))
BENCH = tomllib.loads((build.FOLDER.with_name("sr1_7bench") / "suite.toml").read_text("utf-8"))
ITEMS: list[dict[str, Any]] = [
    json.loads(line) for line in (build.FOLDER / "items.jsonl").read_text("utf-8").splitlines()
]
CATEGORIES = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")


@pytest.fixture(scope="module")
def index() -> Any:
    index = cached_index(build.FOLDER / "corpus.jsonl")
    yield index
    index.close()


def test_the_files_are_what_the_packages_give_today() -> None:
    named = {source["name"]: source["version"] for source in SUITE["sources"]}
    here = {
        "pycountry": version("pycountry"),
        "periodictable": version("periodictable"),
        "python": platform.python_version(),
    }
    if here != named:
        pytest.skip(f"built with {named}, here are {here}")
    for name, text in build.rendered().items():
        assert (build.FOLDER / name).read_text("utf-8") == text


def test_no_category_has_a_benchmarks_name() -> None:
    assert [part["category"] for part in BENCH["dataset"]["parts"]] == list(CATEGORIES)
    counts = Counter(item["category"] for item in ITEMS)
    assert counts == {f"{category}-fixture": 6 for category in CATEGORIES}


def test_the_benchs_sizes_are_those_of_the_literature() -> None:
    parts = BENCH["dataset"]["parts"]
    assert sum(part["n"] for part in parts) == 51_713
    assert {part["category"] for part in parts if part["domain"] == "in"} == {"nq", "hotpotqa"}
    assert {part["category"]: part["file"].partition("/")[2] for part in parts} == dict(
        zip(CATEGORIES, ["test.jsonl"] * 3 + ["dev.jsonl"] * 3 + ["test.jsonl"], strict=True)
    )


def test_prompts_hold_one_example_of_an_answer() -> None:
    """So that Search-R1's rule of two or more answers means what it means there."""
    for suite in (SUITE, BENCH):
        assert suite["prompt"]["without_context"].count("</answer>") == 1
        assert suite["prompt"] == BENCH["prompt"]
        assert suite["metrics"] == BENCH["metrics"]


HOPS: dict[str, tuple[str, Callable[[str], str]]] = {
    "hotpotqa-fixture": (
        r"numeric code is (\d+)",
        lambda number: f"currency numeric code {number}",
    ),
    "2wikimultihopqa-fixture": (r"number (\d+)", lambda number: f"atomic number {int(number) + 1}"),
    "musique-fixture": (r"Subdivisions of ([^\"]+)", lambda name: f"three-letter code of {name}"),
    "bamboogle-fixture": (r"base class is (\w+)", lambda name: f"{name} exception of Python"),
}


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item["id"])
def test_every_answer_can_be_found_by_searching(item: dict[str, Any], index: Index) -> None:
    """Search with the question; where a hop is needed, search with what was found there."""
    asked = re.sub(r".*of which (.+) is a part\?", r"\1", item["question"])
    found = index.search([asked], 3)[0]
    accepted = [normalise(answer) for answer in item["answers"]]
    if item["category"] in HOPS:
        assert not any(holds(passage, accepted) for passage in found[:1])
        pattern, query = HOPS[item["category"]]
        clues = [match for p in found for match in re.findall(pattern, p.contents)]
        found = [p for hits in index.search([query(clue) for clue in clues], 3) for p in hits]
    assert any(holds(passage, accepted) for passage in found)
    assert not any(f" {answer} " in f" {normalise(item['question'])} " for answer in accepted)


def holds(passage: Passage, accepted: list[str]) -> bool:
    text = f" {normalise(passage.contents)} "
    return any(f" {answer} " in text for answer in accepted)
