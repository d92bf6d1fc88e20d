"""Cells of a suite whose agent searches: protocol, run, record."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from evaluation_support import cell
from scripted_server import Answer, says, serving

from eval_harness.retrievers.bm25 import cached_index
from eval_harness.retrievers.server import serving as retrieving
from eval_harness.suite import SUITES
from hubtools.errors import HubtoolsError
from hubtools.evaluation.bridge import evaluate, planned_protocol
from hubtools.evaluation.protocol import protocol_id
from hubtools.evaluation.records import read_run
from hubtools.evaluation.spec import SuiteOptions

FIXTURE = "sr1_7bench-fixture"
CORPUS = SUITES / FIXTURE / "corpus.jsonl"


def looks_it_up(question: str, attempt: int, headers: dict[str, str]) -> Answer:
    if asked := re.search(r"Question: (.*)", question):
        return says(f"<search>{asked[1]}</search>")
    base = re.search(r"Its base class is (\w+)", question)
    return says(f"<answer>{base[1]}</answer>" if base else "Final answer: none")


def protocol(url: str, out: Path, suite: str = FIXTURE, **options: Any) -> dict[str, Any]:
    return planned_protocol(cell(suite, out, url=url, options=SuiteOptions(**options)))


def test_corpus_nudge_and_context_are_in_the_protocol(tmp_path: Path) -> None:
    with serving(looks_it_up) as (url, _), closing(cached_index(CORPUS)) as index:
        plain = protocol(url, tmp_path)
        assert plain["retriever"]["corpus_sha256"] == index.about["corpus_sha256"]
        with retrieving(index) as server:
            assert protocol(url, tmp_path, retriever_url=server.url) == plain
            assert protocol(url, tmp_path, retriever_url=f"{server.url}/other") != plain
        others = [
            protocol(url, tmp_path, nudge=True),
            protocol(url, tmp_path, max_context=4096),
            protocol(url, tmp_path, limit=2),
            protocol(url, tmp_path, limit=2, sample_seed=1),
            protocol(url, tmp_path, suite=f"{FIXTURE}-tools"),
        ]
    assert len({protocol_id(made) for made in [plain, *others]}) == 6


def test_a_run_by_a_service_reads_back(tmp_path: Path) -> None:
    with (
        serving(looks_it_up) as (url, _),
        closing(cached_index(CORPUS)) as index,
        retrieving(index) as server,
    ):
        options = SuiteOptions(limit=2, retriever_url=server.url)
        made = evaluate(cell(FIXTURE, tmp_path, url=url, options=options), log=tmp_path / "log")
    run = read_run(Path(made["path"]))
    assert run.protocol["retriever"] == index.identity()
    assert made["categories"]["popqa-fixture"]["metrics"]["em_strict"]["n"] == 2
    assert set(made["tiers"]) == {"1", "2"}
    lines = run.path.with_name("samples.jsonl").read_text().splitlines()
    samples = [json.loads(line) for line in lines]
    assert all(sample["extra"]["searches"] == 1 for sample in samples)


@pytest.mark.parametrize(
    ("suite", "options", "id"),
    [
        ("sr1_7bench", {}, "HT426"),
        (FIXTURE, {"retriever_url": "http://127.0.0.1:9"}, "HT428"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_asked(
    tmp_path: Path, suite: str, options: dict[str, Any], id: str
) -> None:
    with serving(looks_it_up) as (url, requests):
        with pytest.raises(HubtoolsError) as caught:
            evaluate(
                cell(suite, tmp_path / "out", url=url, options=SuiteOptions(**options)),
                log=tmp_path / "log",
            )
        assert requests == []
    assert caught.value.id == id
    assert caught.value.next
