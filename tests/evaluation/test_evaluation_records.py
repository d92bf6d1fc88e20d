from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evaluation_support import RIGHT, WEIGHTS, cell
from scripted_server import says, serving

from hubtools.digests import sha256_bytes, sha256_file
from hubtools.errors import CheckError
from hubtools.evaluation.bridge import evaluate
from hubtools.evaluation.protocol import protocol_id
from hubtools.evaluation.records import read_run
from hubtools.evaluation.rescoring import rescore
from hubtools.evaluation.run_facts import run_facts
from hubtools.facts import FactSet, facts_from_json


def test_a_run_is_read_from_its_folder_or_its_record(runs: dict[str, Path]) -> None:
    run = read_run(runs["mi"])
    assert run.sha256 == read_run(runs["mi"] / "run.json").sha256
    assert (run.suite, run.title, run.member, run.weights) == ("words", "Words", "mi", "c1" * 32)
    right = RIGHT["mi"]
    assert run.metrics["em"] == {"value": right / 24, "n": 24, "items": 24, "k": right}
    assert (run.n, run.items, run.failures) == (24, 24, 0)
    assert run.grids["em"].items == tuple(f"w-{i:02d}" for i in range(24))
    assert run.grids["em"].scores[:, 0].tolist() == [float(i < 5) for i in range(24)]


def test_facts_carry_their_evidence(runs: dict[str, Path]) -> None:
    run = read_run(runs["mi"])
    facts = FactSet(tuple(run_facts(run, path_in_facts="evals/run.json")))
    assert [fact.id for fact in facts] == [
        f"eval.words.{name}" for name in ("em", "f1", "failures", "cut_off", "tokens")
    ]
    em = facts.get("eval.words.em")
    assert em is not None
    assert em.spread is not None
    assert (em.value, em.k, em.n, em.unit) == (5 / 24, 5, 24, "proportion")
    assert (em.spread.kind, em.spread.method, em.spread.level, em.spread.k) == (
        *("ci", "Wilson", 0.95, 24),
    )
    assert em.spread.low < em.value < em.spread.high
    assert em.subject.weights == WEIGHTS["mi"]
    assert em.source.sha256 == sha256_file(runs["mi"] / "run.json")
    assert em.protocol == run.protocol_id
    record = json.loads((runs["mi"] / "run.json").read_bytes())
    for fact in facts:
        value = record
        for key in fact.source.pointer.split("/")[1:]:
            value = value[key]
        assert value == fact.value
    assert facts_from_json(json.loads(json.dumps(facts.to_json()))) == facts


def test_facts_may_be_about_the_member_under_another_name(runs: dict[str, Path]) -> None:
    [fact, *_] = run_facts(read_run(runs["mi"]), path_in_facts="x", member="m", weights="00")
    assert (fact.subject.member, fact.subject.weights) == ("m", "00")


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "run.json"
    record = json.loads(path.read_bytes())
    change(record)
    path.write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r["metrics"]["em"].update(value=0.9), "metrics is not what the samples give"),
        (lambda r: r["metrics"]["em"].update(k=9), "metrics is not what the samples give"),
        (lambda r: r["metrics"]["f1"].update(n=25), "metrics is not what the samples give"),
        (lambda r: r.update(failures=1), "failures is not what"),
        (lambda r: r["tokens"].update(prompt=1), "tokens is not what"),
        (lambda r: r["served"].update(model={"gpt": 24}), "served is not what"),
        (lambda r: r["protocol"].update(dtype="bfloat16"), "protocol_id is not what"),
        (lambda r: r["suite"].update(version="7"), "suite_digest is not what"),
        (lambda r: r.update(samples_sha256="00"), "samples_sha256 is not what"),
        (lambda r: r.update(schema="x/1"), "not a run record (eval_harness.run/2)"),
        (lambda r: r.pop("member"), "field 'member' is missing"),
        (lambda r: r.update(suite=None), "the run record is damaged"),
        (lambda r: r.update(member="r2e"), "member is not what about.json says"),
        (lambda r: r.update(weights="d2" * 32), "weights is not what about.json says"),
        (lambda r: r.update(seed=7), "seed is not what about.json says"),
        (lambda r: r.update(requested="gpt"), "requested is not what about.json says"),
        (lambda r: r.update(plan_id="00" * 32), "plan_id is not what about.json says"),
        (lambda r: r.update(status="external"), "status is not that of a run of this harness"),
        (lambda r: r["harness"].update(version="1"), "harness is not that of the protocol"),
        (lambda r: r["engine"].update(backend="vllm"), "engine is not that of the protocol"),
        (lambda r: r.update(responses_sha256="00"), "responses_sha256 is not that of"),
        (lambda r: r["protocol"].update(dtype="x") or agree(r), "protocol is not what about.json"),
        (lambda r: r.update(status=None), "status is none of measured, external, reported"),
        (lambda r: r.update(status=5), "status is none of"),
        (lambda r: r.update(member=["mi"]), "member is not text"),
        (lambda r: r.update(weights={}), "weights is not text"),
        (lambda r: r.update(requested=3), "requested is not text"),
        (lambda r: r.update(seed=True), "seed is not a whole number"),
        (lambda r: r.update(engine=None), "engine is not a table"),
        (lambda r: r.update(engine=[]), "engine is not a table"),
        (lambda r: r["engine"].update(versions=5), "versions is not a table"),
        (lambda r: r.update(missing="seed"), "missing is not a list of names"),
    ],
)
def test_a_figure_that_was_changed_is_found(
    runs: dict[str, Path], change: Callable[[dict[str, Any]], None], said: str
) -> None:
    rewrite(runs["mi"], change)
    with pytest.raises(CheckError) as caught:
        read_run(runs["mi"])
    assert caught.value.id == "HT410"
    assert said in caught.value.message
    assert caught.value.where == str(runs["mi"] / "run.json")


def agree(record: dict[str, Any]) -> None:
    record["protocol_id"] = protocol_id(record["protocol"])


def test_a_protocol_that_names_another_scorer_than_the_suite_is_found(
    runs: dict[str, Path],
) -> None:
    def change(record: dict[str, Any]) -> None:
        record["protocol"]["scorers"]["em"] = "f1@1"
        agree(record)

    (runs["mi"] / "about.json").unlink()
    assert read_run(runs["mi"]).member == "mi"
    rewrite(runs["mi"], change)
    with pytest.raises(CheckError, match="scorers of the protocol is not what the suite says"):
        read_run(runs["mi"])


def test_the_name_of_another_harness_does_not_spare_the_scores(runs: dict[str, Path]) -> None:
    def change(record: dict[str, Any]) -> None:
        record["harness"]["name"] = record["protocol"]["harness"]["name"] = "lm_eval"
        agree(record)

    rewrite(runs["mi"], change)
    with pytest.raises(CheckError, match="harness is another than wrote responses"):
        read_run(runs["mi"])


@pytest.mark.parametrize(
    ("both", "said"),
    [(False, "not what its transcript ends with"), (True, "is not that of responses.jsonl.zst")],
)
def test_an_answer_that_the_model_did_not_give_is_found(
    runs: dict[str, Path], both: bool, said: str
) -> None:
    """Text, scores and sums agree with each other; the transcript or the journal does not."""
    path = runs["mi"] / "samples.jsonl"
    samples = [json.loads(line) for line in path.read_bytes().splitlines()]
    samples[20]["output"] = "nothing at all"
    if both:
        samples[20]["transcript"][-1]["content"] = "nothing at all"
        samples[20]["extracted"] = dict.fromkeys(samples[20]["extracted"], "nothing at all")
    path.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    rewrite(runs["mi"], lambda r: r.update(samples_sha256=sha256_bytes(path.read_bytes())))
    with pytest.raises(CheckError, match=said):
        read_run(runs["mi"])


@pytest.mark.parametrize("name", ["run.json", "samples.jsonl", "about.json"])
def test_deep_nesting_is_an_error_and_no_traceback(runs: dict[str, Path], name: str) -> None:
    (runs["mi"] / name).write_text("[" * 100_000)
    with pytest.raises(CheckError, match="HT410"):
        read_run(runs["mi"])


def test_a_journal_that_was_changed_is_not_scored_again(runs: dict[str, Path]) -> None:
    path = runs["mi"] / "responses.jsonl.zst"
    path.write_bytes(path.read_bytes() + path.read_bytes()[:40])
    with pytest.raises(CheckError, match="responses_sha256 is not that of"):
        rescore(runs["mi"])
    assert not (runs["mi"].with_name("1")).exists()


def test_samples_changed_together_with_digest_and_sums_are_found(runs: dict[str, Path]) -> None:
    """Someone gives an answer a score it does not have, and makes every total agree with it."""
    path = runs["mi"] / "samples.jsonl"
    samples = [json.loads(line) for line in path.read_bytes().splitlines()]
    samples[20]["scores"] = {"em": 1.0, "f1": 1.0}
    path.write_text("".join(json.dumps(sample) + "\n" for sample in samples))

    def agree(record: dict[str, Any]) -> None:
        record["samples_sha256"] = sha256_bytes(path.read_bytes())
        record["metrics"]["em"] |= {"value": 6 / 24, "k": 6}
        record["metrics"]["f1"]["value"] += 1 / 24

    rewrite(runs["mi"], agree)
    with pytest.raises(CheckError, match="scores of w-20 are not those of its answer"):
        read_run(runs["mi"])


@pytest.mark.parametrize("keep", [0, 23])
def test_missing_samples_are_found(runs: dict[str, Path], keep: int) -> None:
    path = runs["mi"] / "samples.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:keep]))
    with pytest.raises(CheckError, match="HT410"):
        read_run(runs["mi"])


@pytest.mark.parametrize("name", ["run.json", "samples.jsonl"])
@pytest.mark.parametrize("damage", ["gone", "cut", "other"])
def test_damaged_files_are_an_error_and_no_traceback(
    runs: dict[str, Path], name: str, damage: str
) -> None:
    path = runs["mi"] / name
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-9] if damage == "cut" else b"[1, 2]\n")
    with pytest.raises(CheckError, match="HT410"):
        read_run(runs["mi"])


def test_another_answer_key_than_the_suites_is_found(tmp_path: Path) -> None:
    """Answers, scores, sums and digests all agree with each other, but not with the suite."""
    with serving(lambda *_: says("wrong")) as (url, _):
        record = evaluate(cell("short_qa", tmp_path, url=url), log=tmp_path / "log")
    folder = Path(record["path"]).parent
    assert read_run(folder).metrics["em"]["k"] == 0
    path = folder / "samples.jsonl"
    samples = [json.loads(line) for line in path.read_bytes().splitlines()]
    samples[0] |= {"answers": ["wrong"], "scores": {"em": 1.0, "f1": 1.0}}
    path.write_text("".join(json.dumps(sample) + "\n" for sample in samples))

    def agree(record: dict[str, Any]) -> None:
        record["samples_sha256"] = sha256_bytes(path.read_bytes())
        record["metrics"]["em"] |= {"value": 1 / 64, "k": 1}
        record["metrics"]["f1"]["value"] = 1 / 64

    rewrite(folder, agree)
    with pytest.raises(CheckError, match="other questions or answers than the suite"):
        read_run(folder)
